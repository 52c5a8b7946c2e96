# SPDX-License-Identifier: GPL-2.0
#
# Usage: unaligned.pl write|read DATA DIR
#
# Writes files in DIR, or reads them, with O_DIRECT, in blocks of odd sizes, from or to memory that begins at
# odd places within a page, eight files at a time. Their names have the place and the size of a block. What is
# written comes from the file DATA, what is read goes to DATA.PLACE-SIZE.

use strict;
use warnings;
use Fcntl;

use constant PAGE => 65536;

sub transfer {
	my ($mode, $data, $dir, $place, $size) = @_;
	my $flags = $mode eq 'write' ? O_WRONLY | O_CREAT : O_RDONLY;
	my $memory = "\0" x ($size + PAGE);
	my $start = sub { unpack('J', pack('P', $memory)) };
	substr($memory, 0, 1) = "\1";
	my $at = ($place - $start->()) % PAGE;
	my $count = $size < 10000 ? 50 : 5;
	sysopen(my $file, "$dir/$place-$size", $flags | O_DIRECT) or die "$dir/$place-$size: $!";
	open(my $bytes, $mode eq 'write' ? '<:raw' : '>:raw', $mode eq 'write' ? $data : "$data.$place-$size") or die "$data: $!";
	seek($bytes, $place, 0) if $mode eq 'write';
	for (1 .. $count) {
		my $done;
		if ($mode eq 'write') {
			read($bytes, my $block, $size) == $size or die "$data is too short";
			substr($memory, $at, $size) = $block;
			$done = syswrite($file, $memory, $size, $at);
		} else {
			$done = sysread($file, $memory, $size, $at);
			print $bytes substr($memory, $at, $size);
		}
		die "$mode of $size bytes: $!" unless defined $done;
		die "$mode of $size bytes was of $done" unless $done == $size;
		die "the memory has moved" unless ($start->() + $at) % PAGE == $place;
	}
	close($file) or die "close: $!";
	close($bytes) or die "$data: $!";
}

my ($mode, $data, $dir) = @ARGV;
my ($running, $failed) = (0, 0);
for my $place (1, 13, 511, 2047) {
	for my $size (1001, 4097, 66049, 262145) {
		if ($running == 8) {
			wait;
			$failed |= $?;
			$running--;
		}
		my $child = fork // die "fork: $!";
		if ($child == 0) {
			transfer($mode, $data, $dir, $place, $size);
			exit 0;
		}
		$running++;
	}
}
while (wait != -1) {
	$failed |= $?;
}
exit($failed != 0);
