"""OCI images without a registry or a daemon: layers, configurations, manifests and the layout that holds them.

The same input gives the same bytes: members are sorted, belong to root, and have one time.
"""

import gzip
import hashlib
import io
import json
import posixpath
import tarfile
from pathlib import Path

LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
# One more name for a single manifest, for who loads the layout into Docker before version 25.
DOCKER_MANIFEST = "manifest.json"


def digest(data):
    return hashlib.sha256(data).hexdigest()


def encoded(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def folders(paths):
    """Every folder above these paths."""
    found = set()
    for path in paths:
        while path := posixpath.dirname(path):
            found.add(path)
    return found


def layer(files, links=None, empty=()):
    """An uncompressed tar of files (path -> (mode, bytes)), symbolic links (path -> target) and empty folders."""
    links = links or {}
    above = (folders([*files, *links, *empty]) | set(empty)) - set(links)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted([*files, *links, *above]):
            member = tarfile.TarInfo(path)
            member.mtime = 0
            data = None
            if path in files:
                member.mode, data = files[path]
                member.size = len(data)
            elif path in links:
                member.type, member.linkname, member.mode = tarfile.SYMTYPE, links[path], 0o777
            else:
                member.type, member.mode = tarfile.DIRTYPE, 0o1777 if path == "tmp" else 0o755
            tar.addfile(member, io.BytesIO(data) if data is not None else None)
    return buffer.getvalue()


class Layout:
    """One image, for one or more architectures."""

    def __init__(self, name, tag):
        self.name, self.tag, self.blobs, self.manifests, self.loadable = name, tag, {}, [], None

    def blob(self, media_type, data):
        self.blobs[digest(data)] = data
        return {"mediaType": media_type, "digest": f"sha256:{digest(data)}", "size": len(data)}

    def add(self, architecture, tars, config, created, labels):
        """Adds the image of an architecture. Gives its uncompressed size."""
        compressed = [gzip.compress(tar, compresslevel=9, mtime=0) for tar in tars]
        document = {
            "created": created,
            "architecture": architecture,
            "os": "linux",
            "config": {**config, "Labels": labels},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest(tar)}" for tar in tars]},
            "history": [{"created": created, "created_by": "scripts/image"} for _ in tars],
        }
        descriptor = self.blob(CONFIG, encoded(document))
        layers = [self.blob(LAYER, data) for data in compressed]
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": descriptor, "layers": layers,
                    "annotations": labels}
        entry = self.blob(MANIFEST, encoded(manifest))
        self.manifests.append({**entry, "platform": {"architecture": architecture, "os": "linux"}})
        path = lambda of: "blobs/sha256/" + of["digest"].removeprefix("sha256:")
        self.loadable = [{"Config": path(descriptor), "RepoTags": [f"{self.name}:{self.tag}"], "Layers": [path(one) for one in layers]}]
        return sum(len(tar) for tar in tars)

    def files(self):
        """Every file of the layout by path, and the digest by which a chart names the image."""
        top = self.manifests[0]
        if len(self.manifests) > 1:
            index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": self.manifests}
            top = self.blob(INDEX, encoded(index))
        named = {**top, "annotations": {"org.opencontainers.image.ref.name": self.tag,
                                        "io.containerd.image.name": f"{self.name}:{self.tag}"}}
        files = {f"blobs/sha256/{name}": data for name, data in self.blobs.items()}
        files["oci-layout"] = encoded({"imageLayoutVersion": "1.0.0"})
        files["index.json"] = encoded({"schemaVersion": 2, "mediaType": INDEX, "manifests": [named]})
        if len(self.manifests) == 1:
            files[DOCKER_MANIFEST] = encoded(self.loadable)
        return files, top["digest"]

    def write(self, folder):
        """Writes the layout as a folder and as a tar beside it. Gives the image's digest."""
        files, top = self.files()
        for path, data in files.items():
            target = Path(folder) / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        Path(f"{folder}.tar").write_bytes(layer({path: (0o644, data) for path, data in files.items()}))
        return top
