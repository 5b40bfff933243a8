"""A scene file read by its written form alone."""

from __future__ import annotations

import gzip
import json
import struct
from typing import Any

import numpy as np


class SceneFile:
    def __init__(self, data: bytes) -> None:
        whole = gzip.decompress(data)
        (length,) = struct.unpack_from("<I", whole)
        self.header: dict[str, Any] = json.loads(whole[4 : 4 + length])
        self.binary = whole[-(-(4 + length) // 4) * 4 :]

    def vertices(self, number: int) -> Any:
        mesh = self.header["meshes"][number]
        numbers = np.frombuffer(self.binary, "<i2", 3 * mesh["count"], mesh["vertices"]).reshape(-1, 3)
        return np.asarray(mesh["place"]) + mesh["unit"] * numbers

    def triangles(self, number: int) -> Any:
        mesh = self.header["meshes"][number]
        kind = "<u4" if mesh["wide"] else "<u2"
        return np.frombuffer(self.binary, kind, 3 * mesh["faces"], mesh["triangles"]).reshape(-1, 3)
