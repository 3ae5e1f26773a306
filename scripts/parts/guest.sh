# Sourced: a machine with a kernel of its own, made of Debian's packages, which are unpacked and not installed.
# Owns what is in the guest's root file system besides the programs that a test adds, and how QEMU is called.

# The kernel by its metapackage, so that it is the one that Debian has now. LAZULI_GUEST_KERNEL=backports takes the one that
# Debian builds of its next release for this one, and its QEMU: in that of Debian 12 (7.2, without KVM) Linux 6.12 meets
# states that no processor has, and oopses.
readonly GUEST_KERNEL=linux-image-cloud-amd64
readonly GUEST_TOOL_PACKAGES=(busybox-static btrfs-progs ca-certificates cifs-utils dash e2fsprogs kmod
    mount nftables udev util-linux xfsprogs)
readonly SAMBA_PACKAGES=(samba samba-common-bin)
# Parts of closures that nothing here runs.
readonly UNUSED_PACKAGES='^(adduser|debconf|dpkg|initramfs-tools.*|(lib)?(perl|python3).*|perl-modules.*|tar|ucf)_'

# What is taken of the guest's packages, where they have it; busybox gives what is left.
readonly GUEST_TOOLS=(
    bin/btrfs bin/dash bin/findmnt bin/kmod bin/lsblk bin/mount bin/mountpoint bin/udevadm bin/umount
    sbin/blkid sbin/blockdev sbin/dumpe2fs sbin/e2fsck sbin/fsck sbin/fsck.btrfs sbin/fsck.xfs sbin/losetup sbin/mke2fs sbin/mkfs.btrfs sbin/mkfs.xfs
    sbin/mount.cifs sbin/resize2fs sbin/tune2fs sbin/wipefs sbin/xfs_repair usr/bin/nsenter usr/bin/unshare
    usr/sbin/nft usr/sbin/xfs_admin usr/sbin/xfs_db usr/sbin/xfs_growfs usr/sbin/xfs_io
    lib/udev/scsi_id lib/udev/ata_id etc/mke2fs.conf
    lib/udev/rules.d/50-udev-default.rules lib/udev/rules.d/60-block.rules
    lib/udev/rules.d/60-persistent-storage.rules lib/udev/rules.d/80-drivers.rules
)
# Modules, with those that they need. The crypto API loads ciphers by their names: all of them are taken.
readonly GUEST_MODULES=(virtio_pci virtio_net virtio_scsi virtio_blk virtio_rng sd_mod sg nvme cifs nls_utf8 ext4 xfs btrfs
    loop dm_mod nft_nat nft_chain_nat nft_ct nft_reject_ipv4 nvme_tcp nvmet nvmet_tcp tcm_loop target_core_file target_core_iblock
    overlay fuse configfs)
readonly GUEST_MODULE_FOLDERS=(kernel/crypto kernel/arch/x86/crypto kernel/lib/crypto)

# Why build_folder and samba_folder fail.
readonly NO_PACKAGES="Debian's packages cannot be had: run apt-get update as root, and see whether the archive can be reached"

# need_for_guest: the programs, or the end of the script.
need_for_guest() {
    [[ $(uname -m) == x86_64 ]] || cannot_run "the guest is an x86_64 machine, and this is none"
    [[ -e /usr/share/keyrings/debian-archive-keyring.gpg ]] && command -v apt-get >/dev/null 2>&1 ||
        cannot_run "kernel and tools of the guest come from Debian's archive through apt: run it on Debian"
    need qemu-system-x86_64 qemu-system-x86
    need modprobe kmod
    need cpio cpio
    need setpriv util-linux
    need strip binutils
    install_needed || cannot_run "install ${missing_packages[*]}"
}

# Options by which apt-get sees other packages than this system does.
apt_sources=()

# apt_in FOLDER ARGUMENT...: apt-get that believes that nothing is installed, and keeps its files in a folder.
apt_in() {
    local folder=$1
    shift
    mkdir -p "$folder/archives/partial"
    touch "$folder/status"
    # It knows the system's lists of packages and their signatures, and changes nothing of the system.
    DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends -o Debug::NoLocking=1 \
        -o "Dir::State::status=$folder/status" -o "Dir::Cache=$folder" -o APT::Sandbox::User=root "${apt_sources[@]}" "$@"
}

codename() { (source /etc/os-release && printf '%s' "$VERSION_CODENAME"); }

# see_backports: from now on apt_in sees the release and its backports, from lists of its own; nothing of the system changes.
see_backports() {
    local folder archive release
    folder=$(cache_folder)/backports
    release=$(codename)
    # The archive from which this system is.
    archive=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' |
        sed -n "s/ $release\$//p" | sort -u | sed -n 1p)
    [[ -n $archive ]] || return 1
    mkdir -p "$folder"/{lists/partial,parts,cache/archives/partial}
    printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n' \
        "$archive" "$release" "$archive" "$release-backports" >"$folder/sources.list"
    apt_sources=(-o "Dir::Etc::SourceList=$folder/sources.list" -o "Dir::Etc::SourceParts=$folder/parts"
        -o "Dir::State::Lists=$folder/lists")
    # Without the archive the lists of the last time will do.
    apt-get -qq -o Debug::NoLocking=1 -o "Dir::Cache=$folder/cache" -o APT::Sandbox::User=root "${apt_sources[@]}" \
        update >&2 || true
}

# closure PACKAGE...: the packages with all that they depend on, a line each: address, file, size and digest.
closure() {
    local folder status=0
    folder=$(mktemp -d)
    apt_in "$folder" --print-uris install "$@" | sort || status=$?
    rm -rf "$folder"
    return $status
}

# unpack FOLDER TREE PACKAGE...: downloads the packages with all that they depend on, which apt verifies, and unpacks them
# into a tree.
unpack() {
    local folder=$1 tree=$2 package
    shift 2
    apt_in "$folder" --download-only install "$@" >/dev/null || return 1
    mkdir -p "$tree"
    for package in "$folder"/archives/*.deb; do
        [[ ${package##*/} =~ $UNUSED_PACKAGES ]] || dpkg-deb --extract "$package" "$tree" || return 1
    done
    rm -rf "$folder"
}

# versions PACKAGE...: the closure, from lists that are fetched where root may do that and there are none.
versions() {
    closure "$@" 2>/dev/null || { is_root && apt-get update -qq >&2 && closure "$@"; }
}

# build_folder: the folder of the guest, made if need be: vmlinuz and initrd. LAZULI_GUEST is one that is there already.
build_folder() {
    local key
    [[ -z ${LAZULI_GUEST:-} ]] || { printf '%s' "$LAZULI_GUEST" && return; }
    guest_packages=("$GUEST_KERNEL" "${GUEST_TOOL_PACKAGES[@]}") guest_qemu=()
    case ${LAZULI_GUEST_KERNEL:-release} in
    release) ;;
    backports)
        see_backports || return 1
        guest_packages[0]+=/$(codename)-backports
        guest_qemu=(--target-release "$(codename)-backports" qemu-system-x86)
        ;;
    *)
        say "LAZULI_GUEST_KERNEL is $LAZULI_GUEST_KERNEL; allowed are release and backports" >&2
        return 1
        ;;
    esac
    key=$(versions "${guest_packages[@]}") || return 1
    ((${#guest_qemu[@]} == 0)) || key+=$(versions "${guest_qemu[@]}") || return 1
    cached guest "$key" scripts/parts/guest.sh tests/guest/init -- make_guest
}

# samba_folder: the folder in which Debian's samba is unpacked. LAZULI_SAMBA is one that is there already.
samba_folder() {
    local key
    [[ -z ${LAZULI_SAMBA:-} ]] || { printf '%s' "$LAZULI_SAMBA" && return; }
    key=$(versions "${SAMBA_PACKAGES[@]}") && cached samba "$key" scripts/parts/guest.sh -- make_samba
}

make_samba() {
    unpack "$1/apt" "$1" "${SAMBA_PACKAGES[@]}" || return 1
    # The C library is the system's, which its loader belongs to.
    find "$1" -name 'libc.so.*' -o -name 'libpthread.so.*' -o -name 'ld-linux*' -o -name 'libm.so.*' | xargs -r rm -f
    rm -rf "$1"/{usr/share,usr/include,var}
}

make_guest() {
    local out=$1 packages=$1/packages tree=$1/tree kernel version
    unpack "$out/apt" "$packages" "${guest_packages[@]}" || return 1
    kernel=$(echo "$packages"/boot/vmlinuz-*)
    version=${kernel##*/vmlinuz-}
    [[ -f $kernel ]] || { say "the packages have no kernel, or several: $kernel" && return 1; }
    cp "$kernel" "$out/vmlinuz" &&
        take_tools "$packages" "$tree" &&
        take_modules "$packages" "$tree" "$version" &&
        install -m 755 tests/guest/init "$tree/init" &&
        pack "$tree" >"$out/initrd" || return 1
    rm -rf "$packages" "$tree"
    ((${#guest_qemu[@]} == 0)) || take_qemu "$out/qemu" "$out/apt"
}

# take_qemu TREE APT: a QEMU of the guest's own, with all that it needs.
take_qemu() {
    unpack "$2" "$1" "${guest_qemu[@]}" || return 1
    rm -rf "$1"/{etc,sbin,var} "$1"/usr/share/{bash-completion,bug,doc,icons,lintian,locale,man,pkgconfig,vala}
}

# qemu_of FOLDER: fills $qemu with the words by which QEMU is called.
qemu_of() {
    local own=$1/qemu
    qemu=(qemu-system-x86_64)
    [[ -d $own ]] || return 0
    qemu=("$own/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2" --library-path
        "$own/lib/x86_64-linux-gnu:$own/usr/lib/x86_64-linux-gnu" "$own/usr/bin/qemu-system-x86_64"
        -L "$own/usr/share/qemu" -L "$own/usr/share/seabios")
}

# pack TREE: as an archive that the kernel unpacks, not compressed: it is loaded faster so.
pack() { (cd "$1" && find . | LC_ALL=C sort | cpio --quiet --create --format newc --owner 0:0 --reproducible); }

take_tools() {
    local packages=$1 tree=$2 tool library name
    mkdir -p "$tree"/{bin,csi,dev,etc,mnt,proc,root,run,sbin,sys,tmp,usr/bin,usr/sbin,var/lib,lib64,lib/systemd}
    local libraries=$packages/lib/x86_64-linux-gnu:$packages/usr/lib/x86_64-linux-gnu
    for tool in "${GUEST_TOOLS[@]}"; do
        [[ -e $packages/$tool ]] || { say "the packages have no $tool" && return 1; }
        install -D --mode "$(stat --dereference --format %a "$packages/$tool")" "$packages/$tool" "$tree/$tool"
        while read -r library; do
            install -D "$library" "$tree/${library#"$packages"/}"
        done < <("$packages/lib64/ld-linux-x86-64.so.2" --library-path "$libraries" --list "$packages/$tool" 2>/dev/null |
            grep -oE "$packages/[^ ]+" | grep '\.so')
    done
    # For programs that are built on this machine. The loader's other name is a link.
    for name in lib64/ld-linux-x86-64.so.2 lib/x86_64-linux-gnu/{libc.so.6,libm.so.6,libgcc_s.so.1}; do
        install -D "$packages/$name" "$tree/$name"
    done
    # What is above goes first: busybox does what the packages do not.
    install "$packages/bin/busybox" "$tree/bin/busybox"
    for name in sbin/modprobe sbin/insmod bin/lsmod; do
        ln -sf /bin/kmod "$tree/$name"
    done
    ln -sf dash "$tree/bin/sh"
    for name in ext2 ext3 ext4; do
        ln -sf mke2fs "$tree/sbin/mkfs.$name"
        ln -sf e2fsck "$tree/sbin/fsck.$name"
    done
    ln -sf /bin/udevadm "$tree/lib/systemd/systemd-udevd"
    for name in $("$packages/bin/busybox" --list); do
        [[ -e $tree/bin/$name || -e $tree/sbin/$name || -e $tree/usr/bin/$name || -e $tree/usr/sbin/$name ||
            -L $tree/bin/$name || -L $tree/sbin/$name ]] || ln -s busybox "$tree/bin/$name"
    done
    # As update-ca-certificates makes it; the program refuses to start without any.
    mkdir -p "$tree/etc/ssl/certs"
    cat "$packages"/usr/share/ca-certificates/mozilla/*.crt >"$tree/etc/ssl/certs/ca-certificates.crt" || return 1
    printf 'root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n' >"$tree/etc/passwd"
    printf 'root:x:0:\ndisk:x:6:\nnogroup:x:65534:\n' >"$tree/etc/group"
    printf '127.0.0.1 localhost\n' >"$tree/etc/hosts"
    printf 'hosts: files\n' >"$tree/etc/nsswitch.conf"
}

take_modules() {
    local packages=$1 tree=$2 version=$3 module file folder
    local modules=$packages/lib/modules/$version
    [[ -f $modules/modules.dep ]] || depmod --basedir "$packages" "$version" || return 1
    while read -r file; do
        install -D --mode 644 "$file" "$tree/${file#"$packages"/}"
    done < <(for module in "${GUEST_MODULES[@]}"; do
        # One that is built in has no file.
        modprobe --dirname "$packages" --set-version "$version" --show-depends "$module" || say "missing $module" >&2
    done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | sort -u)
    for folder in "${GUEST_MODULE_FOLDERS[@]}"; do
        [[ ! -d $modules/$folder ]] || { mkdir -p "$tree/lib/modules/$version/$folder" &&
            cp -r "$modules/$folder/." "$tree/lib/modules/$version/$folder/"; }
    done
    cp "$modules"/modules.{order,builtin,builtin.modinfo} "$tree/lib/modules/$version/" &&
        depmod --basedir "$tree" "$version"
}

# add_files FOLDER GUEST=PATH...: an initrd with these programs in it, as a file without a name that $initrd is open on:
# nothing is left of it, whatever ends this process.
add_files() {
    local folder=$1 work file
    shift
    work=$(mktemp -d "${TMPDIR:-/tmp}/lazuli-guest.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    trap 'exit 143' TERM
    for file in "$@"; do
        mkdir -p "$work/tree/$(dirname "${file%%=*}")"
        strip -o "$work/tree/${file%%=*}" "${file#*=}"
    done
    cp "$folder/initrd" "$work/initrd"
    # The kernel takes several archives, one after the other.
    (($# == 0)) || pack "$work/tree" >>"$work/initrd"
    exec {initrd}<"$work/initrd"
    rm -rf "$work"
    trap - EXIT TERM
}

# run_guest FOLDER CONSOLE PARAMETERS [ARGUMENT...]: becomes QEMU, which ends with the process that has started it.
run_guest() {
    local folder=$1 console=$2 parameters=$3
    shift 3
    # The clock is one that QEMU keeps: a processor's own counter is measured at the start, and on a busy machine wrongly, so
    # that the guest's time runs ahead and deadlines pass too early. The rest makes a failure an end.
    # What is given counts: of several values the kernel takes the last.
    parameters="console=ttyS0 quiet loglevel=4 mitigations=off random.trust_cpu=on no_timer_check \
clocksource=acpi_pm panic=-1 nvme_core.multipath=N $parameters"
    qemu_of "$folder"
    exec setpriv --pdeathsig KILL nice -n 2 "${qemu[@]}" -machine q35 -accel tcg -cpu max -smp 1 -m 768 \
        -nodefaults -no-user-config -display none -no-reboot \
        -kernel "$folder/vmlinuz" -initrd "/dev/fd/$initrd" -append "$parameters" -serial "$console" \
        -netdev user,id=network -device virtio-net-pci,netdev=network,romfile= \
        -device virtio-scsi-pci,id=scsi -device virtio-rng-pci "$@"
}
