"""Debian packages as the node's image needs them: pins, downloads, and the files taken from them.

Owns what the image contains besides the program. A package is pinned by version and SHA-256 in
deploy/image/packages.tsv; what does not match is refused. A new pin comes from an index that Debian has signed.
"""

import csv
import datetime
import email.utils
import hashlib
import io
import lzma
import posixpath
import struct
import subprocess
import tarfile
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

# The archive itself keeps a version until the next one; its snapshot of the day of the pins keeps it for good.
SOURCES = ("http://deb.debian.org/{archive}/{path}", "http://snapshot.debian.org/archive/{archive}/{day}/{path}")

# What csi-node runs, by package. fsck.xfs and fsck.btrfs are scripts: they need a shell. fsck.ext* and mkfs.ext* are
# other names of e2fsck and mke2fs.
TOOLS = {
    "e2fsprogs": (
        "sbin/e2fsck sbin/fsck.ext2 sbin/fsck.ext3 sbin/fsck.ext4 sbin/mke2fs sbin/mkfs.ext2 sbin/mkfs.ext3"
        " sbin/mkfs.ext4 sbin/resize2fs etc/mke2fs.conf"
    ).split(),
    "xfsprogs": "sbin/mkfs.xfs sbin/fsck.xfs sbin/xfs_repair usr/sbin/xfs_growfs".split(),
    "btrfs-progs": "bin/btrfs sbin/fsck.btrfs sbin/mkfs.btrfs".split(),
    "util-linux": "sbin/blkid sbin/fsck sbin/wipefs".split(),
    # For kernels that mount no share by their own mount API.
    "cifs-utils": ["sbin/mount.cifs"],
    "dash": ["bin/dash"],
    # glibc loads it when a thread of xfs_repair ends; no program names it.
    "libgcc-s1": ["lib/{triplet}/libgcc_s.so.1"],
}
# Where libraries come from; only those that a tool names are taken.
LIBRARIES = (
    "libc6 libext2fs2 libcom-err2 libblkid1 libmount1 libsmartcols1 libuuid1 libselinux1 libpcre2-8-0 libudev1 zlib1g"
    " liblzo2-2 libzstd1 liburcu8 libinih1 libcap-ng0"
).split()
CERTIFICATES = "ca-certificates"
TRIPLETS = {"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}
LOADERS = {"amd64": "lib64/ld-linux-x86-64.so.2", "arm64": "lib/ld-linux-aarch64.so.1"}


# The keys of Debian's archive, as its package debian-archive-keyring has them.
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


class Failure(Exception):
    """What went wrong, for the person who runs the script."""


def names():
    return sorted([*TOOLS, *LIBRARIES, CERTIFICATES])


def read_pins(path, architecture):
    """The pins of an architecture by package."""
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    pins = {row["package"]: row for row in rows if row["architecture"] == architecture}
    missing = [name for name in names() if name not in pins]
    if missing:
        raise Failure(f"{path} pins no {', '.join(missing)} for {architecture}; run scripts/image --pin")
    return pins


def fetch(pin, cache):
    """The package's bytes, from the cache or from Debian."""
    path = Path(cache) / posixpath.basename(pin["path"])
    if path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == pin["sha256"]:
        return path.read_bytes()
    problems = []
    for source in SOURCES:
        url = source.format(**pin)
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                data = answer.read()
        except (urllib.error.URLError, TimeoutError) as error:
            problems.append(f"{url}: {error}")
            continue
        found = hashlib.sha256(data).hexdigest()
        if found != pin["sha256"]:
            raise Failure(f"{url} has the SHA-256 {found}; pinned is {pin['sha256']}")
        Path(cache).mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_bytes(data)
        part.rename(path)
        return data
    raise Failure(f"{pin['package']} {pin['version']} cannot be downloaded:\n  " + "\n  ".join(problems))


def contents(deb):
    """The files of a package: path without a leading slash -> (mode, bytes), links resolved within it."""
    if deb[:8] != b"!<arch>\n":
        raise Failure("a downloaded package is no Debian package")
    at, data = 8, None
    while at < len(deb):
        header = deb[at : at + 60]
        name, size = header[:16].decode().strip().rstrip("/"), int(header[48:58])
        body = deb[at + 60 : at + 60 + size]
        if name == "data.tar.xz":
            data = lzma.decompress(body)
        elif name == "data.tar":
            data = body
        at += 60 + size + size % 2
    if data is None:
        raise Failure("a package has no data.tar.xz")
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        members = {member.name.removeprefix("./").rstrip("/"): member for member in tar.getmembers()}
        files = {}
        for name, member in members.items():
            target = member
            for _ in range(8):
                if target.issym():
                    link = posixpath.normpath(posixpath.join(posixpath.dirname(target.name.removeprefix("./")), target.linkname))
                    target = members.get(link.lstrip("/"))
                elif target.islnk():
                    target = members.get(target.linkname.removeprefix("./"))
                else:
                    break
                if target is None:
                    break
            if target is not None and target.isfile():
                files[name] = (target.mode & 0o755, tar.extractfile(target).read())
    return files


def needed(elf):
    """The names of the libraries that an ELF file loads; none for what is no ELF file."""
    if elf[:5] != b"\x7fELF\x02":
        return []
    start, = struct.unpack_from("<Q", elf, 32)
    size, count = struct.unpack_from("<HH", elf, 54)
    headers = [struct.unpack_from("<IIQQQQQQ", elf, start + index * size) for index in range(count)]
    loaded = [(virtual, offset, length) for kind, _, offset, virtual, _, length, _, _ in headers if kind == 1]
    dynamic = [(offset, length) for kind, _, offset, _, _, length, _, _ in headers if kind == 2]
    if not dynamic:
        return []
    offset, length = dynamic[0]
    entries = list(struct.iter_unpack("<qQ", elf[offset : offset + length]))
    table = next(value for tag, value in entries if tag == 5)
    table = next(table - virtual + begin for virtual, begin, size in loaded if virtual <= table < virtual + size)
    text = lambda at: elf[table + at : elf.index(b"\0", table + at)].decode()
    return [text(value) for tag, value in entries if tag == 1]


def merged(path):
    """The path below usr, as Debian has it since /bin, /sbin and /lib are links."""
    return path if path.startswith(("usr/", "etc/")) else f"usr/{path}"


def node_files(pins, cache, architecture):
    """(files, links) of the node's image without the program: path -> (mode, bytes), path -> target."""
    triplet = TRIPLETS[architecture]
    packages = {name: contents(fetch(pins[name], cache)) for name in names() if name != CERTIFICATES}
    libraries = {}
    for package in [*LIBRARIES, "libgcc-s1"]:
        for path, file in packages[package].items():
            if posixpath.dirname(path) in (f"lib/{triplet}", f"usr/lib/{triplet}"):
                libraries[posixpath.basename(path)] = (package, file)
    files, taken, open_names = {}, set(), []
    for package, paths in TOOLS.items():
        for path in (path.format(triplet=triplet) for path in paths):
            if path not in packages[package]:
                raise Failure(f"{package} {pins[package]['version']} has no /{path}")
            files[merged(path)] = packages[package][path]
            taken.add(package)
            open_names += needed(packages[package][path][1])
    while open_names:
        name = open_names.pop()
        path = f"usr/lib/{triplet}/{name}"
        if path in files:
            continue
        if name not in libraries:
            raise Failure(f"no pinned package has the library {name}")
        package, file = libraries[name]
        files[path] = file
        taken.add(package)
        open_names += needed(file[1])
    loader = posixpath.basename(LOADERS[architecture])
    if f"usr/lib/{triplet}/{loader}" not in files:
        raise Failure(f"no tool names the loader {loader}")
    for package in sorted(taken):
        licence = f"usr/share/doc/{package}/copyright"
        if licence in packages[package]:
            files[licence] = packages[package][licence]
    links = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64", "usr/bin/sh": "dash"}
    links[f"usr/{LOADERS[architecture]}"] = posixpath.relpath(
        f"usr/lib/{triplet}/{loader}", posixpath.dirname(f"usr/{LOADERS[architecture]}"))
    return files, links, sorted(taken)


def certificate_files(pins, cache):
    """The bundle of certificate authorities that Mozilla trusts, where every program looks for it."""
    package = contents(fetch(pins[CERTIFICATES], cache))
    paths = sorted(path for path in package if path.startswith("usr/share/ca-certificates/mozilla/"))
    if len(paths) < 100:
        raise Failure(f"{CERTIFICATES} has {len(paths)} certificates; expected more than 100")
    bundle = b"".join(package[path][1].rstrip(b"\n") + b"\n" for path in paths)
    licence = f"usr/share/doc/{CERTIFICATES}/copyright"
    return {"etc/ssl/certs/ca-certificates.crt": (0o644, bundle), licence: package[licence]}


def download(url):
    try:
        with urllib.request.urlopen(url, timeout=120) as answer:
            return answer.read()
    except (urllib.error.URLError, TimeoutError) as error:
        raise Failure(f"{url}: {error}") from error


def signed(url, data, keyring=KEYRING):
    """The text that a clear-signed file holds, if one of Debian's keys has signed it."""
    if not Path(keyring).exists():
        raise Failure(f"there is no {keyring}: install debian-archive-keyring")
    with tempfile.TemporaryDirectory() as folder:
        file, text = Path(folder) / "signed", Path(folder) / "text"
        file.write_bytes(data)
        try:
            run = subprocess.run(
                ["gpgv", "--keyring", keyring, "--output", str(text), str(file)], capture_output=True, text=True)
        except FileNotFoundError as error:
            raise Failure("there is no gpgv: install gpgv") from error
        if run.returncode != 0:
            raise Failure(f"{url} has no valid signature of Debian:\n{run.stderr.strip()}")
        return text.read_text(encoding="utf-8")


def digests(release):
    """The SHA-256 of each file that a Release file lists, by path."""
    found, listed = {}, False
    for line in release.splitlines():
        if not line.startswith(" "):
            listed = line == "SHA256:"
        elif listed:
            digest, _, path = line.split()
            found[path] = digest
    return found


def check_release(url, release, suite, now):
    """Refuses a Release file that Debian has signed for another suite, or that is no longer valid at this time.

    A signature alone says neither: a proxy could answer with the file of another suite, or with last year's. Debian gives
    bookworm-security a week, and bookworm itself no end.
    """
    fields = dict(line.split(": ", 1) for line in release.splitlines() if ": " in line and not line.startswith(" "))
    codename = fields.get("Codename")
    if codename != suite:
        raise Failure(f"{url} is signed for the suite {codename}, not for {suite}")
    valid_until = fields.get("Valid-Until")
    if valid_until is None and suite.endswith("-security"):
        raise Failure(f"{url} has no Valid-Until, which Debian gives every Release file of {suite}")
    if valid_until is not None and email.utils.parsedate_to_datetime(valid_until) < now:
        raise Failure(f"{url} was valid until {valid_until}: a mirror or a proxy answers with an old one")


def index(archive, suite, architecture):
    """The index of packages of a suite, which the suite's signed Release file names by its SHA-256."""
    suite_url = f"http://deb.debian.org/{archive}/dists/{suite}"
    path = f"main/binary-{architecture}/Packages.xz"
    release = signed(f"{suite_url}/InRelease", download(f"{suite_url}/InRelease"))
    check_release(f"{suite_url}/InRelease", release, suite, datetime.datetime.now(datetime.timezone.utc))
    data = download(f"{suite_url}/{path}")
    expected, found = digests(release).get(path), hashlib.sha256(data).hexdigest()
    if found != expected:
        raise Failure(f"{suite_url}/{path} has the SHA-256 {found}; the signed Release file says {expected}")
    return lzma.decompress(data).decode()


def stanzas(archive, suite, architecture):
    for stanza in index(archive, suite, architecture).split("\n\n"):
        fields = (line.split(": ", 1) for line in stanza.splitlines() if ": " in line and not line.startswith(" "))
        yield {field[0]: field[1] for field in fields}


def pin(path, newer, day):
    """Writes the newest versions of bookworm. newer(a, b) compares versions as dpkg does; day is that of a snapshot."""
    rows = [["architecture", "package", "version", "sha256", "archive", "path", "day"]]
    for architecture in TRIPLETS:
        found = {}
        for archive, suite in (("debian", "bookworm"), ("debian-security", "bookworm-security")):
            for fields in stanzas(archive, suite, architecture):
                name = fields.get("Package")
                if name in names() and (name not in found or newer(fields["Version"], found[name][0])):
                    found[name] = (fields["Version"], fields["SHA256"], archive, fields["Filename"])
        for name in names():
            version, digest, archive, file = found[name]
            rows.append([architecture, name, version, digest, archive, file, day])
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter="\t", lineterminator="\n").writerows(rows)
