# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Kerberos between the two machines, for who has the commands "server" and "client":
#
#   realm_lacks    says what they lack for it, if anything
#   realm_begins   starts the key distribution centre and the daemons, and exports /export to all
#   realm_ends     undoes that

# Both daemons say that they are ready before they listen to the kernel, which asks nobody then:
# listens DAEMON FILE.
guest_add <<-'EOF'
	REALM=LAB.TEST
	realm_configuration() {
		cat >/etc/krb5.conf <<-END
			[libdefaults]
			default_realm = $REALM
			dns_lookup_kdc = false
			dns_lookup_realm = false
			dns_canonicalize_hostname = false
			rdns = false
			[realms]
			$REALM = {
				kdc = $SERVER
			}
		END
	}
	listens() { for pid in $(pidof "$1"); do readlink /proc/$pid/fd/*; done | grep "$2" >/dev/null; }
EOF

# What the machines lack for it, if anything.
realm_lacks() {
	local machine
	server 'command -v krb5kdc rpc.svcgssd' >"$RUN/realm" || echo "the server has no Kerberos"
	client 'command -v rpc.gssd' >"$RUN/realm" || echo "the client has no Kerberos"
	for machine in server client; do
		"$machine" 'modprobe -q rpcsec_gss_krb5 || [ -d /proc/net/rpc/auth.rpcsec.init ]' || echo "the $machine kernel has no Kerberos"
	done
}

# A key distribution centre on the server, where both ends have a principal of their own.
realm_begins() {
	server <<-'EOF' >"$RUN/realm"
		realm_configuration
		mkdir -p /etc/krb5kdc /var/lib/krb5kdc
		kdb5_util create -s -r $REALM -P $RANDOM$RANDOM
		for host in server client; do kadmin.local addprinc -randkey nfs/$host; done
		kadmin.local ktadd -k /etc/krb5.keytab nfs/server
		kadmin.local ktadd -k /run/client.keytab nfs/client
		krb5kdc
		rpc.svcgssd
		wait_for 10 listens rpc.svcgssd auth.rpcsec.init/channel
		exportfs -o rw,insecure,no_root_squash,no_subtree_check,fsid=1,sec=sys:krb5:krb5i:krb5p '*:/export'
	EOF
	server 'base64 -w 0 /run/client.keytab' >"$RUN/keytab"
	client keytab="$(<"$RUN/keytab")" <<-'EOF'
		realm_configuration
		base64 -d >/etc/krb5.keytab <<<"$keytab"
		rpc.gssd
		wait_for 10 listens rpc.gssd clntXX/gssd
	EOF
}

realm_ends() {
	client <<-'EOF'
		kill $(pidof rpc.gssd)
		rm -f /etc/krb5.conf /etc/krb5.keytab /tmp/krb5cc*
		gone() { ! pidof rpc.gssd >/dev/null; }
		wait_for 10 gone
	EOF
	server <<-'EOF' >"$RUN/realm"
		exportfs -r
		kill $(pidof krb5kdc rpc.svcgssd)
		gone() { ! pidof krb5kdc rpc.svcgssd >/dev/null; }
		wait_for 10 gone
		kdb5_util destroy -f
		rm -rf /etc/krb5.conf /etc/krb5.keytab /run/client.keytab
	EOF
}
