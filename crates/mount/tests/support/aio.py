"""Asynchronous O_DIRECT writes (Linux AIO) to a file that another thread reads through the page cache.

Usage: aio.py FILE ROUNDS. After each write has completed, a buffered read must return what it wrote. Exits with 1 and a
line that says what was read if it doesn't.
"""

import ctypes
import mmap
import os
import sys
import threading

SIZE = 640 << 10
SETUP, DESTROY, GETEVENTS, SUBMIT = 206, 207, 208, 209  # x86-64: io_setup(2) and so on
if os.uname().machine == "aarch64":
    SETUP, DESTROY, SUBMIT, GETEVENTS = 0, 1, 2, 4
PWRITE = 1


class Iocb(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_uint64), ("key", ctypes.c_uint32), ("rw_flags", ctypes.c_uint32),
        ("opcode", ctypes.c_uint16), ("priority", ctypes.c_int16), ("fd", ctypes.c_uint32),
        ("buffer", ctypes.c_uint64), ("count", ctypes.c_uint64), ("offset", ctypes.c_int64),
        ("reserved", ctypes.c_uint64), ("flags", ctypes.c_uint32), ("eventfd", ctypes.c_uint32),
    ]


class Event(ctypes.Structure):
    _fields_ = [("data", ctypes.c_uint64), ("iocb", ctypes.c_uint64), ("res", ctypes.c_int64), ("res2", ctypes.c_int64)]


libc = ctypes.CDLL(None, use_errno=True)


def call(number, *arguments):
    result = libc.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def main(path, rounds):
    fd = os.open(path, os.O_RDWR | os.O_DIRECT)
    memory = mmap.mmap(-1, SIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    context = ctypes.c_ulong(0)
    call(SETUP, ctypes.c_uint(8), ctypes.byref(context))
    over = threading.Event()
    buffered = os.open(path, os.O_RDONLY)

    def read_all_the_time():
        while not over.is_set():
            for offset in range(0, SIZE, 16 << 10):
                os.pread(buffered, 16 << 10, offset)

    reader = threading.Thread(target=read_all_the_time)
    reader.start()
    wrong = []
    for number in range(rounds):
        byte = b"%c" % (ord("A") + number % 26)
        memory[:] = byte * SIZE
        block = Iocb(opcode=PWRITE, fd=fd, buffer=address, count=SIZE, offset=0)
        pointer = ctypes.pointer(block)
        call(SUBMIT, context, ctypes.c_long(1), ctypes.byref(pointer))
        event = Event()
        call(GETEVENTS, context, ctypes.c_long(1), ctypes.c_long(1), ctypes.byref(event), None)
        assert event.res == SIZE, event.res
        read = b"".join(os.pread(buffered, 128 << 10, offset) for offset in range(0, SIZE, 128 << 10))
        if read != byte * SIZE:
            old = next(index for index in range(SIZE) if read[index] != byte[0])
            wrong.append(f"round {number}: byte {old} is {read[old:old + 1]}, not {byte}")
    over.set()
    reader.join()
    call(DESTROY, context)
    if wrong:
        print(f"{len(wrong)} of {rounds} reads were wrong: {wrong[0]}")
        sys.exit(1)


main(sys.argv[1], int(sys.argv[2]))
