# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Kerberos between the two machines, for who has the commands "server" and "client":
#
#   realm_lacks    says what they lack for it, if anything
#   realm_begins   starts the key distribution centre and the daemons, and exports /export to all
#   realm_ends     undoes that

REALM=LAB.TEST
realm_configuration="cat >/etc/krb5.conf <<-END
	[libdefaults]
	default_realm = $REALM
	dns_lookup_kdc = false
	dns_lookup_realm = false
	dns_canonicalize_hostname = false
	rdns = false
	[realms]
	$REALM = {
		kdc = \$SERVER
	}
	END"

# Both daemons say that they are ready before they listen to the kernel, which asks nobody then:
# listens DAEMON FILE.
realm_listens='
	listens() { [ -n "$(for pid in $(pidof "$1"); do readlink /proc/$pid/fd/*; done | grep -m 1 "$2")" ]; }
'

# What the machines lack for it, if anything.
realm_lacks() {
	local machine
	server 'command -v krb5kdc rpc.svcgssd' >"$RUN/realm" || echo "the server has no Kerberos"
	client 'command -v rpc.gssd' >"$RUN/realm" || echo "the client has no Kerberos"
	for machine in server client; do
		$machine 'modprobe -q rpcsec_gss_krb5 || [ -d /proc/net/rpc/auth.rpcsec.init ]' || echo "the $machine kernel has no Kerberos"
	done
}

# A key distribution centre on the server, where both ends have a principal of their own.
realm_begins() {
	server "$realm_configuration$realm_listens
		mkdir -p /etc/krb5kdc /var/lib/krb5kdc
		kdb5_util create -s -r $REALM -P $RANDOM$RANDOM
		for host in server client; do kadmin.local addprinc -randkey nfs/\$host; done
		kadmin.local ktadd -k /etc/krb5.keytab nfs/server
		kadmin.local ktadd -k /run/client.keytab nfs/client
		krb5kdc
		rpc.svcgssd
		wait_for 10 listens rpc.svcgssd auth.rpcsec.init/channel
		exportfs -o rw,insecure,no_root_squash,no_subtree_check,fsid=1,sec=sys:krb5:krb5i:krb5p '*:/export'" >"$RUN/realm"
	server 'base64 -w 0 /run/client.keytab' >"$RUN/keytab"
	client "$realm_configuration$realm_listens
		base64 -d >/etc/krb5.keytab <<<'$(<"$RUN/keytab")'
		rpc.gssd
		wait_for 10 listens rpc.gssd clntXX/gssd"
}

realm_ends() {
	client '
		kill $(pidof rpc.gssd)
		rm -f /etc/krb5.conf /etc/krb5.keytab /tmp/krb5cc*
		gone() { ! pidof rpc.gssd >/dev/null; }
		wait_for 10 gone'
	server '
		exportfs -r
		kill $(pidof krb5kdc rpc.svcgssd)
		gone() { ! pidof krb5kdc rpc.svcgssd >/dev/null; }
		wait_for 10 gone
		kdb5_util destroy -f
		rm -rf /etc/krb5.conf /etc/krb5.keytab /run/client.keytab' >"$RUN/realm"
}
