#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Calls and replies of every form that is not just file data: each is made to happen, the
# transport's counters must tell that it did, and both sides must see the same contents.

. "$(dirname "$0")/lib/test.sh"

# Numbers of the columns in mountstats.
READ_CHUNKS=11 REPLY_CHUNKS=13 POSITION_ZERO=21

guest_add <<-'EOF'
	acl_of() { getfacl --absolute-names -nc "$@"; }
	value_of() { getfattr --absolute-names --only-values -n "$1" "$2"; }
	attributes() { find "$1" -mindepth 1 -printf '%f %s %m %n %T@\n' | sort; }
EOF

# grows COLUMN ...: what the client does, given as to client, makes that counter grow.
grows() {
	local text
	text=$(text_of "${@:2}") || exit
	client column="$1" commands="$text" <<-'EOF'
		before=$(xprt_stat $column)
		eval "$commands"
		after=$(xprt_stat $column)
		[ $after -gt $before ] || fail "column $column of mountstats stayed at $after"
	EOF
}

# The output of the commands is the same in both machines: same CLIENT-COMMANDS SERVER-COMMANDS.
same() {
	local there here
	here=$(client "$1")
	there=$(server "$2")
	[ -n "$here" ] || fail "there is nothing to compare"
	if [ "$here" != "$there" ]; then
		{ diff <(printf '%s\n' "$there") <(printf '%s\n' "$here") || true; } | head -n 20
		fail "server and client do not see the same"
	fi
}

read_directory() {
	server_dir /export
	server <<-'EOF'
		cd /export/$TEST
		for i in {1..2000}; do : >"an entry whose name has some length, number $i"; done
	EOF
	mount_nfs "$1"
	grows $REPLY_CHUNKS <<-'EOF'
		ls -U $MNT/$TEST | sort >/run/$TEST.names
		[ $(wc -l </run/$TEST.names) = 2000 ]
	EOF
	same 'sha256sum </run/$TEST.names' 'ls /export/$TEST | sort | sha256sum'
}

# READDIRPLUS: names, attributes and file handles, many to a Reply. Nobody asks for an entry's once
# more.
read_attributes() {
	has_kernel client 7.2 || skip "the client's kernel may not know rdirplus=force"
	server_dir /export
	# Not with a process for each: where the CPU is emulated, these take minutes.
	server <<-'EOF'
		cd /export/$TEST
		for i in {1..1000}; do printf "%*s" $((i * 7)) "" >"entry $i"; done
		for mode in {0..7}; do
			names=()
			for ((i = mode; i < 1000; i += 8)); do names+=("entry $((i + 1))"); done
			chmod 40$mode "${names[@]}"
		done
	EOF
	mount_nfs 3 rdirplus=force
	grows $REPLY_CHUNKS <<-'EOF'
		asked() {
			awk '$1 ~ /^(GETATTR|LOOKUP|READDIRPLUS):/ { count[$1] = $2 }
				END {
					others = count["GETATTR:"] + count["LOOKUP:"]
					print count["READDIRPLUS:"], others
				}' /proc/self/mountstats
		}
		read -r lists entries <<<"$(asked)"
		attributes $MNT/$TEST >/run/$TEST.entries
		read -r more_lists more_entries <<<"$(asked)"
		lists=$((more_lists - lists)) entries=$((more_entries - entries))
		printf '%d READDIRPLUS, %d GETATTR and LOOKUP\n' $lists $entries
		[ $lists -ge 3 ] || fail 'that is not how the entries were read'
		[ $entries -lt 100 ] || fail 'entries were asked for once more'
	EOF
	same 'cat /run/$TEST.entries; rm /run/$TEST.entries' 'attributes /export/$TEST'
}

# No more entries: at ACLs beyond a page the kernel's NFS code itself fails, over TCP as well.
posix_acls() {
	server_dir /export
	mount_nfs 3
	grows $POSITION_ZERO <<-'EOF'
		cd $MNT/$TEST
		touch file
		for i in {1..165}; do
			printf 'user:%d:r-x\ngroup:%d:-w-\n' $((10000 + i)) $((20000 + i))
		done | sort >/run/$TEST.acl
		setfacl -n -M /run/$TEST.acl file
	EOF
	same 'cat /run/$TEST.acl; rm /run/$TEST.acl' \
		'acl_of --no-effective /export/$TEST/file | grep -E "^(user|group):[0-9]" | sort'
	server <<-'EOF'
		cd /export/$TEST
		for i in {1..300}; do printf 'user:%d:rw-\n' $((30000 + i)); done >/run/acl
		touch other
		setfacl -M /run/acl other
		rm /run/acl
	EOF
	grows $REPLY_CHUNKS 'acl_of $MNT/$TEST/other >/run/$TEST.acl'
	same 'cat /run/$TEST.acl; rm /run/$TEST.acl' 'acl_of /export/$TEST/other'
}

extended_attributes() {
	server_dir /export
	server <<-'EOF' || skip "the export has no user attributes of 16 KiB"
		touch /export/$TEST/file
		value=$(attribute_value)
		[ ${#value} = 16384 ]
		setfattr -n user.down -v "$value" /export/$TEST/file
	EOF
	mount_nfs 4.2
	grows $POSITION_ZERO 'setfattr -n user.up -v "$(attribute_value)" $MNT/$TEST/file'
	grows $REPLY_CHUNKS 'value_of user.down $MNT/$TEST/file >/run/$TEST.down'
	same 'sha256sum </run/$TEST.down; rm /run/$TEST.down' \
		'value_of user.down /export/$TEST/file | sha256sum'
	client drop_caches
	same 'value_of user.up $MNT/$TEST/file | sha256sum' \
		'value_of user.up /export/$TEST/file | sha256sum'
	server '[ $(value_of user.up /export/$TEST/file | wc -c) = 16384 ]'
}

# Its target is data, so it travels apart from the call.
long_symlink() {
	server_dir /export
	mount_nfs "$1"
	grows $READ_CHUNKS <<-'EOF'
		target=$(head -c 3060 /dev/urandom | base64 -w 0 | tr / _)
		[ ${#target} = 4080 ]
		ln -s "$target" $MNT/$TEST/link
	EOF
	client drop_caches
	same 'readlink $MNT/$TEST/link' 'readlink /export/$TEST/link'
	server '[ $(readlink /export/$TEST/link | wc -c) = 4081 ]'
}

long_names() {
	server_dir /export
	mount_nfs "$1"
	client READ_CHUNKS="$READ_CHUNKS" POSITION_ZERO="$POSITION_ZERO" <<-'EOF'
		name=$(printf 'n%.0s' {1..255})
		cd $MNT/$TEST
		reads=$(xprt_stat $READ_CHUNKS) zero=$(xprt_stat $POSITION_ZERO)
		mkdir $name
		mkdir $name/$name
		mv $name/$name $name/${name/n/m}
		rmdir $name/${name/n/m}
		touch $name/$name
		[ $(xprt_stat $READ_CHUNKS) = $reads ] || fail 'a name went as a Read chunk'
		[ $(xprt_stat $POSITION_ZERO) = $zero ] ||
			fail 'a call with a name went as a chunk as a whole'
	EOF
	same 'find $MNT/$TEST -mindepth 1 -printf "%P\n"' \
		'find /export/$TEST -mindepth 1 -printf "%P\n"'
}

test_case "v3: 2000 directory entries in Reply chunks" read_directory 3
test_case "v4.2: 2000 directory entries in Reply chunks" read_directory 4.2
test_case "v3: attributes of 1000 entries in Reply chunks" read_attributes
test_case "v3: POSIX ACLs in a position-zero Read chunk" posix_acls
test_case "v4.2: extended attributes in a position-zero Read chunk" extended_attributes
for vers in 3 4.2; do
	test_case "v$vers: a long symbolic link in a Read chunk" long_symlink $vers
	test_case "v$vers: long names stay inline" long_names $vers
done
run_cases
