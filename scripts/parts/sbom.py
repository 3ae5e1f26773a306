"""A CycloneDX 1.5 bill of materials: the crates that the program is built from, and the Debian packages of an image."""

import json
import subprocess
import tomllib
import uuid
from pathlib import Path
from urllib.parse import quote

from debian import Failure


def crates(root, target):
    """The crates that are linked for a target, without what only builds or tests."""
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--offline", "--no-default-features",
               "--filter-platform", target]
    run = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if run.returncode:
        raise Failure(f"cargo metadata failed: {run.stderr.strip()}")
    metadata = json.loads(run.stdout)
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    lock = tomllib.loads(Path(root, "Cargo.lock").read_text(encoding="utf-8"))
    checksums = {(package["name"], package["version"]): package.get("checksum") for package in lock["package"]}
    first = metadata["resolve"]["root"]
    seen, queue = {first}, [first]
    while queue:
        for dependency in nodes[queue.pop()]["deps"]:
            linked = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            macro = any("proc-macro" in target["kind"] for target in packages[dependency["pkg"]]["targets"])
            if linked and not macro and dependency["pkg"] not in seen:
                seen.add(dependency["pkg"])
                queue.append(dependency["pkg"])
    for package in sorted((packages[one] for one in seen - {first}), key=lambda p: (p["name"], p["version"])):
        component = {"type": "library", "name": package["name"], "version": package["version"],
                     "purl": f"pkg:cargo/{package['name']}@{package['version']}"}
        component["bom-ref"] = component["purl"]
        if package["license"]:
            component["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
        if checksum := checksums[package["name"], package["version"]]:
            component["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        yield component


def debian_packages(pins, taken):
    for name in sorted(taken):
        pin = pins[name]
        purl = f"pkg:deb/debian/{name}@{quote(pin['version'], safe='')}?arch={pin['architecture']}"
        yield {"type": "library", "name": name, "version": pin["version"], "purl": purl, "bom-ref": purl,
               "hashes": [{"alg": "SHA-256", "content": pin["sha256"]}]}


def document(name, version, architecture, digest, created, components):
    """The bill of one image. Its serial number follows from the image: the same image, the same bill."""
    components = list(components)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'{name}@{digest}')}",
        "version": 1,
        "metadata": {
            "timestamp": created,
            "component": {"type": "container", "name": name, "version": version, "bom-ref": name,
                          "properties": [{"name": "architecture", "value": architecture}],
                          "licenses": [{"license": {"id": "Apache-2.0"}}],
                          "hashes": [{"alg": "SHA-256", "content": digest.removeprefix("sha256:")}]},
        },
        "components": components,
        "dependencies": [{"ref": name, "dependsOn": [component["bom-ref"] for component in components]}],
    }
