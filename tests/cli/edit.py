"""Edits saved files as a damaged disk, another program or a hand would."""

import hashlib
import json
import struct


def drop_last_tensor(path):
    """Removes the tensor whose bytes stand last in a safetensors file."""
    header, data = read_safetensors(path)
    names = sorted((k for k in header if k != "__metadata__"),
                   key=lambda k: header[k]["data_offsets"])
    begin, _ = header.pop(names[-1])["data_offsets"]
    write_safetensors(path, header, data[:begin])


def write_safetensors(path, header, data):
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def sign(checkpoint):
    """Gives an edited checkpoint a manifest that says so, as if it had been saved like this."""
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    text = f"step {manifest['step']}\n"
    for f in manifest["files"]:
        content = (checkpoint / f["name"]).read_bytes()
        f["n_bytes"], f["sha256"] = len(content), hashlib.sha256(content).hexdigest()
        text += f"{f['sha256']} {f['n_bytes']} {f['name']}\n"
    manifest["content_sha256"] = hashlib.sha256(text.encode()).hexdigest()
    (checkpoint / "manifest.json").write_text(json.dumps(manifest))


def read_safetensors(path):
    """Its header and its data."""
    content = path.read_bytes()
    n = struct.unpack("<Q", content[:8])[0]
    return json.loads(content[8:8 + n]), content[8 + n:]
