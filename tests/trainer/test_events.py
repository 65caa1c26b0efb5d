"""TensorBoard's event files: read by a few lines that know the format, and by TensorBoard itself."""

import math
import pathlib
import struct
import subprocess

import pytest

from .read_events import read_with_tensorboard
from .test_options import BUILD


@pytest.fixture(scope="module")
def directory(tmp_path_factory) -> pathlib.Path:
    directory = tmp_path_factory.mktemp("events") / "runs"
    subprocess.run([BUILD / "tests" / "trainer" / "write_report", "events", directory], check=True, capture_output=True)
    return directory


def crc32c(data: bytes) -> int:
    """Bit by bit, from the polynomial."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> int:
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(content: bytes):
    while content:
        length, length_crc = struct.unpack_from("<QI", content)
        data = content[12 : 12 + length]
        (data_crc,) = struct.unpack_from("<I", content, 12 + length)
        assert (length_crc, data_crc) == (masked(content[:8]), masked(data))
        yield data
        content = content[16 + length :]


def varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return value, at


def fields(message: bytes) -> dict[int, list]:
    """A protobuf message without its schema: field numbers to values."""
    found, at = {}, 0
    while at < len(message):
        key, at = varint(message, at)
        if key & 7 == 0:
            value, at = varint(message, at)
        elif key & 7 == 2:
            length, at = varint(message, at)
            value, at = message[at : at + length], at + length
        else:
            form = {1: "<d", 5: "<f"}[key & 7]
            (value,) = struct.unpack_from(form, message, at)
            at += struct.calcsize(form)
        found.setdefault(key >> 3, []).append(value)
    return found


def test_records_and_messages_are_well_formed(directory):
    (file,) = directory.iterdir()
    events = [fields(record) for record in records(file.read_bytes())]
    assert events[0][3] == [b"brain.Event:2"]
    assert all(1.7e9 < event[1][0] < 4e9 for event in events), "the time"
    scalars = {}
    for event in events[1:]:
        for value in fields(event[5][0])[1]:
            tag, number = fields(value)[1][0].decode(), fields(value)[2][0]
            scalars.setdefault(tag, []).append((event[2][0], number))
    assert scalars["train/loss"] == [(step * 1000, pytest.approx(1 / step)) for step in range(1, 301)]
    assert scalars["eval/f1"] == [(2**40, 88.5)]
    assert math.isnan(scalars["eval/nothing"][0][1])


def test_tensorboard_reads_them(directory):
    read = read_with_tensorboard(directory)
    assert read["scalars"].keys() == {"train/loss", "train/learning_rate", "eval/f1", "eval/nothing"}
    assert read["scalars"]["train/loss"] == [[step * 1000, pytest.approx(1 / step)] for step in range(1, 301)]
