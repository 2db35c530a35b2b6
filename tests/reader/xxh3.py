"""XXH3-128 (seed 0) in plain Python: the checksum of chunks and headers, as high64 then low64, big-endian.

Written from the published description of the algorithm, so that the reader shares no code with the server.
"""

import struct

_MASK32 = (1 << 32) - 1
_MASK64 = (1 << 64) - 1

_P32_1, _P32_2, _P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_P64_1 = 0x9E3779B185EBCA87
_P64_2 = 0xC2B2AE3D27D4EB4F
_P64_3 = 0x165667B19E3779F9
_P64_4 = 0x85EBCA77C2B2AE63
_P64_5 = 0x27D4EB2F165667C5
_MIX_1 = 0x165667919E3779F9
_MIX_2 = 0x9FB21C651E98DF25

_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)


def _u32(data, at):
    return struct.unpack_from("<I", data, at)[0]


def _u64(data, at):
    return struct.unpack_from("<Q", data, at)[0]


def _swap32(x):
    return int.from_bytes(x.to_bytes(4, "little"), "big")


def _swap64(x):
    return int.from_bytes(x.to_bytes(8, "little"), "big")


def _fold(a, b):
    product = a * b
    return (product & _MASK64) ^ (product >> 64)


def _avalanche64(h):
    h ^= h >> 33
    h = h * _P64_2 & _MASK64
    h ^= h >> 29
    h = h * _P64_3 & _MASK64
    return h ^ (h >> 32)


def _avalanche(h):
    h ^= h >> 37
    h = h * _MIX_1 & _MASK64
    return h ^ (h >> 32)


def _digest(high, low):
    return struct.pack(">QQ", high & _MASK64, low & _MASK64)


def _empty():
    low = _avalanche64(_u64(_SECRET, 64) ^ _u64(_SECRET, 72))
    high = _avalanche64(_u64(_SECRET, 80) ^ _u64(_SECRET, 88))
    return _digest(high, low)


def _upto3(data):
    n = len(data)
    low = data[0] << 16 | data[n >> 1] << 24 | data[n - 1] | n << 8
    swapped = _swap32(low)
    high = (swapped << 13 | swapped >> 19) & _MASK32
    low ^= _u32(_SECRET, 0) ^ _u32(_SECRET, 4)
    high ^= _u32(_SECRET, 8) ^ _u32(_SECRET, 12)
    return _digest(_avalanche64(high), _avalanche64(low))


def _upto8(data):
    n = len(data)
    keyed = (_u32(data, 0) + (_u32(data, n - 4) << 32)) ^ _u64(_SECRET, 16) ^ _u64(_SECRET, 24)
    product = keyed * (_P64_1 + (n << 2) & _MASK64)
    low, high = product & _MASK64, product >> 64
    high = high + (low << 1) & _MASK64
    low ^= high >> 3
    low ^= low >> 35
    low = low * _MIX_2 & _MASK64
    low ^= low >> 28
    return _digest(_avalanche(high), low)


def _upto16(data):
    n = len(data)
    first, last = _u64(data, 0), _u64(data, n - 8)
    product = (first ^ last ^ _u64(_SECRET, 32) ^ _u64(_SECRET, 40)) * _P64_1
    low, high = product & _MASK64, product >> 64
    low = low + (n - 1 << 54) & _MASK64
    last ^= _u64(_SECRET, 48) ^ _u64(_SECRET, 56)
    high = high + last + (last & _MASK32) * (_P32_2 - 1) & _MASK64
    low ^= _swap64(high)
    product = low * _P64_2
    high = (product >> 64) + high * _P64_2 & _MASK64
    return _digest(_avalanche(high), _avalanche(product & _MASK64))


def _mix16(data, at, key):
    return _fold(_u64(data, at) ^ _u64(_SECRET, key), _u64(data, at + 8) ^ _u64(_SECRET, key + 8))


def _mix32(low, high, data, first, second, key):
    low = low + _mix16(data, first, key) & _MASK64
    low ^= _u64(data, second) + _u64(data, second + 8) & _MASK64
    high = high + _mix16(data, second, key + 16) & _MASK64
    high ^= _u64(data, first) + _u64(data, first + 8) & _MASK64
    return low, high


def _finish_middle(low, high, n):
    sum_low = low + high & _MASK64
    sum_high = low * _P64_1 + high * _P64_4 + n * _P64_2 & _MASK64
    return _digest(-_avalanche(sum_high), _avalanche(sum_low))


def _upto128(data):
    n = len(data)
    low, high = n * _P64_1 & _MASK64, 0
    for step in range((n - 1) // 32, -1, -1):
        low, high = _mix32(low, high, data, 16 * step, n - 16 * (step + 1), 32 * step)
    return _finish_middle(low, high, n)


def _upto240(data):
    n = len(data)
    low, high = n * _P64_1 & _MASK64, 0
    for at in range(0, 128, 32):
        low, high = _mix32(low, high, data, at, at + 16, at)
    low, high = _avalanche(low), _avalanche(high)
    for at in range(128, n - n % 32, 32):
        low, high = _mix32(low, high, data, at, at + 16, 3 + at - 128)
    low, high = _mix32(low, high, data, n - 16, n - 32, 136 - 17 - 16)
    return _finish_middle(low, high, n)


_STRIPE_KEYS = [struct.unpack_from("<8Q", _SECRET, 8 * i) for i in range(16)]


def _accumulate(acc, stripe, keys):
    for i in range(8):
        value = stripe[i]
        keyed = value ^ keys[i]
        acc[i ^ 1] = acc[i ^ 1] + value & _MASK64
        acc[i] = acc[i] + (keyed & _MASK32) * (keyed >> 32) & _MASK64


def _merge(acc, key, start):
    for i in range(4):
        start += _fold(acc[2 * i] ^ _u64(_SECRET, key + 16 * i), acc[2 * i + 1] ^ _u64(_SECRET, key + 16 * i + 8))
    return _avalanche(start & _MASK64)


def _long(data):
    n = len(data)
    acc = [_P32_3, _P64_1, _P64_2, _P64_3, _P64_4, _P32_2, _P64_5, _P32_1]
    scramble_keys = struct.unpack_from("<8Q", _SECRET, 128)
    stripes = (n - 1) // 64
    for index in range(stripes):
        _accumulate(acc, struct.unpack_from("<8Q", data, 64 * index), _STRIPE_KEYS[index % 16])
        if index % 16 == 15:
            for i in range(8):
                mixed = acc[i] ^ (acc[i] >> 47) ^ scramble_keys[i]
                acc[i] = mixed * _P32_1 & _MASK64
    _accumulate(acc, struct.unpack_from("<8Q", data, n - 64), struct.unpack_from("<8Q", _SECRET, 121))
    low = _merge(acc, 11, n * _P64_1 & _MASK64)
    high = _merge(acc, 117, ~(n * _P64_2) & _MASK64)
    return _digest(high, low)


def xxh3_128(data):
    """The 16 bytes that CouchDB stores: high half, then low half, each big-endian."""
    n = len(data)
    if n == 0:
        return _empty()
    if n <= 3:
        return _upto3(data)
    if n <= 8:
        return _upto8(data)
    if n <= 16:
        return _upto16(data)
    if n <= 128:
        return _upto128(data)
    if n <= 240:
        return _upto240(data)
    return _long(data)
