#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Calls and replies of every form that is not just file data: each is made to happen, the
# transport's counters must tell that it did, and both sides must see the same contents.

. "$(dirname "$0")/lib/test.sh"

# Numbers of the columns in mountstats.
READ_CHUNKS=11 REPLY_CHUNKS=13 POSITION_ZERO=21

# grows COLUMN 'COMMANDS': what they do in the client makes that counter grow.
grows() {
	client "
		before=\$(xprt_stat $1)
		$2
		after=\$(xprt_stat $1)
		[ \$after -gt \$before ] || fail \"column $1 of mountstats stayed at \$after\""
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
	server 'cd /export/$TEST &&
		for i in {1..2000}; do : >"an entry whose name has some length, number $i"; done'
	mount_nfs "$1"
	grows $REPLY_CHUNKS 'ls -U $MNT/$TEST |
		sort >/run/$TEST.names; [ $(wc -l </run/$TEST.names) = 2000 ]'
	same 'sha256sum </run/$TEST.names' 'ls /export/$TEST | sort | sha256sum'
}

# READDIRPLUS: names, attributes and file handles, many to a Reply. Nobody asks for an entry's once more.
read_attributes() {
	local format='%f %s %m %n %T@\n'
	has_kernel client 7.2 || skip "the client's kernel may not know rdirplus=force"
	server_dir /export
	# Not with a process for each: where the CPU is emulated, these take minutes.
	server '
		cd /export/$TEST
		for i in {1..1000}; do printf "%*s" $((i * 7)) "" >"entry $i"; done
		for mode in {0..7}; do
			names=()
			for ((i = mode; i < 1000; i += 8)); do names+=("entry $((i + 1))"); done
			chmod 40$mode "${names[@]}"
		done'
	mount_nfs 3 rdirplus=force
	grows $REPLY_CHUNKS "
		asked() { awk '\$1 ~ /^(GETATTR|LOOKUP|READDIRPLUS):/ { count[\$1] = \$2 }
			END { print count[\"READDIRPLUS:\"], count[\"GETATTR:\"] + count[\"LOOKUP:\"] }' /proc/self/mountstats; }
		read -r lists entries <<<\"\$(asked)\"
		find \$MNT/$TEST -mindepth 1 -printf '$format' | sort >/run/$TEST.entries
		read -r more_lists more_entries <<<\"\$(asked)\"
		printf '%d READDIRPLUS, %d GETATTR and LOOKUP\n' \$((more_lists - lists)) \$((more_entries - entries))
		[ \$((more_lists - lists)) -ge 3 ] || fail 'that is not how the entries were read'
		[ \$((more_entries - entries)) -lt 100 ] || fail 'entries were asked for once more'"
	same 'cat /run/$TEST.entries; rm /run/$TEST.entries' "find /export/$TEST -mindepth 1 -printf '$format' | sort"
}

# No more entries: at ACLs beyond a page the kernel's NFS code itself fails, over TCP as well.
posix_acls() {
	server_dir /export
	mount_nfs 3
	grows $POSITION_ZERO '
		cd $MNT/$TEST
		touch file
		for i in {1..165}; do printf "user:%d:r-x\ngroup:%d:-w-\n" $((10000 + i)) \
			$((20000 + i)); done | sort >/run/$TEST.acl
		setfacl -n -M /run/$TEST.acl file'
	same 'cat /run/$TEST.acl; rm /run/$TEST.acl' \
		'getfacl --absolute-names --no-effective -nc /export/$TEST/file |
			grep -E "^(user|group):[0-9]" | sort'
	server 'cd /export/$TEST &&
		for i in {1..300}; do printf "user:%d:rw-\n" $((30000 + i)); done >/run/acl &&
		touch other && setfacl -M /run/acl other && rm /run/acl'
	grows $REPLY_CHUNKS 'getfacl --absolute-names -nc $MNT/$TEST/other >/run/$TEST.acl'
	same 'cat /run/$TEST.acl
	rm /run/$TEST.acl' 'getfacl --absolute-names -nc /export/$TEST/other'
}

extended_attributes() {
	server_dir /export
	server '
		touch /export/$TEST/file
		value=$(attribute_value)
		[ ${#value} = 16384 ]
		setfattr -n user.down -v "$value" /export/$TEST/file' ||
			skip "the export has no user attributes of 16 KiB"
	mount_nfs 4.2
	grows $POSITION_ZERO '
		setfattr -n user.up -v "$(attribute_value)" $MNT/$TEST/file'
	grows $REPLY_CHUNKS 'getfattr --absolute-names --only-values -n user.down $MNT/$TEST/file \
		>/run/$TEST.down'
	same 'sha256sum </run/$TEST.down
	rm /run/$TEST.down' \
		'getfattr --absolute-names --only-values -n user.down /export/$TEST/file |
			sha256sum'
	client drop_caches
	same 'getfattr --absolute-names --only-values -n user.up $MNT/$TEST/file |
		sha256sum' \
		'getfattr --absolute-names --only-values -n user.up /export/$TEST/file | sha256sum'
	server '[ $(getfattr --absolute-names --only-values -n user.up /export/$TEST/file |
		wc -c) = 16384 ]'
}

# Its target is data, so it travels apart from the call.
long_symlink() {
	server_dir /export
	mount_nfs "$1"
	grows $READ_CHUNKS '
		target=$(head -c 3060 /dev/urandom | base64 -w 0 | tr / _)
		[ ${#target} = 4080 ]
		ln -s "$target" $MNT/$TEST/link'
	client drop_caches
	same 'readlink $MNT/$TEST/link' 'readlink /export/$TEST/link'
	server '[ $(readlink /export/$TEST/link | wc -c) = 4081 ]'
}

long_names() {
	server_dir /export
	mount_nfs "$1"
	client "
		name=\$(printf 'n%.0s' {1..255})
		cd \$MNT/$TEST
		reads=\$(xprt_stat $READ_CHUNKS) zero=\$(xprt_stat $POSITION_ZERO)
		mkdir \$name
		mkdir \$name/\$name
		mv \$name/\$name \$name/\${name/n/m}
		rmdir \$name/\${name/n/m}
		touch \$name/\$name
		[ \$(xprt_stat $READ_CHUNKS) = \$reads ] || fail 'a name went as a Read chunk'
		[ \$(xprt_stat $POSITION_ZERO) = \$zero ] ||
			fail 'a call with a name went as a chunk as a whole'"
	same 'find $MNT/$TEST -mindepth 1 -printf "%P\n"' 'find /export/$TEST -mindepth 1 \
		-printf "%P\n"'
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
