#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
# The first and only process of the virtual machine: vm.py says what it is for.
#
# /out is shared with the host: `job` (what to run) and `keep` (folders to be seen
# below the fresh /tmp) come from there, `started` and `status` go there.  The first
# serial port is the kernel's console, the second one the command's output.
#
# With a file `systemd` there this becomes systemd, and the command a service of it.

end()
{
	echo "$1" > /out/status
	sync
	poweroff -f
}

die()
{
	echo "init: $1"
	poweroff -f
}

/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
for m in /mod/*.ko; do insmod "$m" || die "cannot load $m"; done

p9=trans=virtio,version=9p2000.L,msize=512000
mount -t 9p -o "$p9" out /out || die 'no 9p share for results'
mount -t 9p -o "$p9,ro,cache=loose" host /root || die 'no 9p share of the root'

# Where the command may write; folders of the host below them show through.
while read -r d; do
	mkdir -p "/hold$d"
	mount --bind "/root$d" "/hold$d"
done < /out/keep
for d in tmp run; do mount -t tmpfs -o mode=1777 tmpfs "/root/$d"; done
while read -r d; do
	mkdir -p "/root$d"
	mount --bind "/hold$d" "/root$d"
done < /out/keep
for d in proc sys dev; do mount --rbind "/$d" "/root/$d"; done
mkdir -p /dev/pts /dev/shm
ln -s /proc/self/fd /dev/fd
ln -s /proc/self/fd/0 /dev/stdin
ln -s /proc/self/fd/1 /dev/stdout
ln -s /proc/self/fd/2 /dev/stderr
mount -t devpts devpts /dev/pts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
ip link set lo up
hostname vm
stty -F /dev/ttyS1 raw -echo

: > /out/started
if [ -e /out/systemd ]; then
	units=/root/run/systemd/system
	mkdir -p /root/run/vm "$units"
	mount --move /out /root/run/vm
	cat > "$units/job.service" <<-'END'
		[Unit]
		Description=What this virtual machine is for
		[Service]
		Type=oneshot
		ExecStart=/bin/bash /run/vm/job
		ExecStopPost=/bin/sh -c 'echo "$EXIT_STATUS" > /run/vm/status'
		ExecStopPost=/bin/busybox poweroff -f
		StandardOutput=file:/dev/ttyS1
		StandardError=inherit
		OOMPolicy=continue
	END
	# Nothing that this machine has enabled: it is only a root file system here.
	exec switch_root /root /lib/systemd/systemd --unit=job.service
fi
chroot /root /bin/bash -c "$(cat /out/job)" < /dev/null > /dev/ttyS1 2>&1
end $?
