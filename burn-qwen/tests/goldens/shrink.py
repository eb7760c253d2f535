#!/usr/bin/env python3
"""Copies golden cases in the small form that these tests keep.

    python3 shrink.py FOLDER_OF_CASES CASE...

Truth is stored as float32 except where a tensor has few elements (losses, norms): rounding it moves
it by 3e-8, far below the bars. What torch computed is left out; its distance to the truth stands in
errors.json. Everything else is copied as it is. Needs nothing but Python's standard library.
"""

import array
import json
import shutil
import struct
import sys
from pathlib import Path

FEW_ELEMENTS = 64


def read(path):
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    metadata = header.pop("__metadata__", None)
    data = raw[8 + length :]
    tensors = {}
    for name, info in header.items():
        begin, end = info["data_offsets"]
        tensors[name] = (info["dtype"], info["shape"], data[begin:end])
    return tensors, metadata


def write(path, tensors, metadata):
    header, offset = {}, 0
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(t[2] for t in tensors.values()))


def shrink(tensors):
    small = {}
    for name, (dtype, shape, data) in tensors.items():
        if "_torch_" in name:
            continue
        if dtype == "F64" and len(data) > 8 * FEW_ELEMENTS:
            dtype, data = "F32", array.array("f", array.array("d", data)).tobytes()
        if dtype == "I64":
            dtype, data = "I32", array.array("i", array.array("q", data)).tobytes()
        small[name] = (dtype, shape, data)
    return small


def main():
    source, cases = Path(sys.argv[1]), sys.argv[2:]
    here = Path(__file__).parent
    for case in cases:
        target = here / case
        (target / "model").mkdir(parents=True, exist_ok=True)
        for path in [*(source / case).glob("*.json"), *(source / case / "model").iterdir()]:
            copy = target / path.relative_to(source / case)
            shutil.copyfile(path, copy)
        for name in ["single", "packed", "train"]:
            tensors, metadata = read(source / case / f"{name}.safetensors")
            write(target / f"{name}.safetensors", shrink(tensors), metadata)
    # Of the operators only the rotary tables are the model's own.
    tensors, metadata = read(source / "ops" / "rope_far.safetensors")
    tables = {n: t for n, t in tensors.items() if "_torch_" in n or n == "position_ids"}
    write(here / "rope_far.safetensors", tables, metadata)


main()
