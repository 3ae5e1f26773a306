"""Puts the images together: see scripts/image, which calls it."""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import debian
import oci
import sbom

ROOT = Path(__file__).resolve().parents[2]
PINS = ROOT / "deploy/image/packages.tsv"
TARGETS = {"amd64": "x86_64-unknown-linux-musl", "arm64": "aarch64-unknown-linux-musl"}
# The chart's controller.runAsUser; the chart wins.
CONTROLLER_USER = "65532:65532"
PATH = "PATH=/usr/sbin:/usr/bin"
MIB = 1 << 20
# Of what is unpacked on a node.
LIMITS = {"lazuli-controller": 24 * MIB, "lazuli-node": 60 * MIB}


def newer(one, other):
    return subprocess.run(["dpkg", "--compare-versions", one, "gt", other], check=False).returncode == 0


def images(architecture, cache):
    """(name, layers, configuration, Debian packages) of each image; the layer with the program comes last."""
    pins = debian.read_pins(PINS, architecture)
    program = (ROOT / "target" / TARGETS[architecture] / "image/lazuli").read_bytes()
    binary = oci.layer({"usr/bin/lazuli": (0o755, program)})
    authorities = debian.certificate_files(pins, cache)
    accounts = {
        "etc/passwd": (0o644, b"root:x:0:0:root:/:/usr/bin/sh\nlazuli:x:65532:65532::/:/nonexistent\n"),
        "etc/group": (0o644, b"root:x:0:\nlazuli:x:65532:\n"),
    }
    controller = oci.layer({**authorities, **accounts}, empty=["tmp"])
    run = {"Entrypoint": ["/usr/bin/lazuli"], "Env": [PATH], "WorkingDir": "/"}
    yield "lazuli-controller", [controller, binary], {**run, "User": CONTROLLER_USER}, [debian.CERTIFICATES], pins
    files, links, taken = debian.node_files(pins, cache, architecture)
    node = oci.layer({**files, **authorities, **accounts}, links, empty=["tmp"])
    yield "lazuli-node", [node, binary], {**run, "User": "0:0"}, [*taken, debian.CERTIFICATES], pins


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pin", action="store_true")
    parser.add_argument("--architecture", action="append", choices=sorted(TARGETS), default=[])
    parser.add_argument("--output", type=Path)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--version")
    parser.add_argument("--revision")
    parser.add_argument("--epoch", type=int)
    options = parser.parse_args()
    if options.pin:
        PINS.parent.mkdir(parents=True, exist_ok=True)
        debian.pin(PINS, newer, time.strftime("%Y%m%dT000000Z", time.gmtime()))
        return
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(options.epoch))
    labels = {
        "org.opencontainers.image.title": "Lazuli",
        "org.opencontainers.image.version": options.version,
        "org.opencontainers.image.revision": options.revision,
        "org.opencontainers.image.licenses": "Apache-2.0",
    }
    layouts, bills = {}, []
    for architecture in sorted(set(options.architecture)):
        crates = list(sbom.crates(ROOT, TARGETS[architecture]))
        for name, layers, config, taken, pins in images(architecture, options.cache):
            layout = layouts.setdefault(name, oci.Layout(name, options.version))
            size = layout.add(architecture, layers, config, created, labels)
            if size > LIMITS[name]:
                raise debian.Failure(f"{name} for {architecture} has {size} bytes unpacked; allowed are {LIMITS[name]}")
            print(f"{name} {architecture}: {size / MIB:.1f} MiB unpacked, {layout.manifests[-1]['digest']}")
            digest = layout.manifests[-1]["digest"]
            components = [*crates, *sbom.debian_packages(pins, taken)]
            bills.append((f"{name}-{architecture}.cdx.json",
                          sbom.document(name, options.version, architecture, digest, created, components)))
    options.output.mkdir(parents=True, exist_ok=True)
    for name, layout in layouts.items():
        digest = layout.write(options.output / name)
        print(f"{name}: {options.output / name} (and .tar); --set image.{name.removeprefix('lazuli-')}.digest={digest}")
    for name, bill in bills:
        (options.output / name).write_text(json.dumps(bill, indent=1, sort_keys=True) + "\n", encoding="utf-8")


try:
    main()
except debian.Failure as failure:
    sys.exit(f"scripts/image: {failure}")
