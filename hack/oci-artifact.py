#!/usr/bin/env python3
"""Writes a file as an OCI artifact, in a layout that skopeo pushes, and prints its digest:

    hack/oci-artifact.py DIRECTORY CONFIG_TYPE LAYER_TYPE FILE [ANNOTATION=VALUE…]

The annotations are the layer's. With the configuration type of an image, the configuration is that of an image with this layer.
"""

import hashlib
import json
import sys
from pathlib import Path

IMAGE = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"

directory, config_type, layer_type, file = sys.argv[1:5]
annotations = dict(argument.split("=", 1) for argument in sys.argv[5:])
blobs = Path(directory, "blobs/sha256")
blobs.mkdir(parents=True)


def blob(media_type, content, **more):
    digest = hashlib.sha256(content).hexdigest()
    (blobs / digest).write_bytes(content)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content), **more}


def encoded(value):
    return json.dumps(value, separators=(",", ":")).encode()


content = Path(file).read_bytes()
layer = blob(layer_type, content, annotations=annotations)
image = {"architecture": "", "os": "", "config": {}, "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]}}
config = blob(config_type, encoded(image) if config_type == IMAGE else b"")
manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer]}
entry = blob(MANIFEST, encoded(manifest))
Path(directory, "index.json").write_bytes(encoded({"schemaVersion": 2, "manifests": [entry]}))
Path(directory, "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
print(entry["digest"])
