"""What a process has used, from /proc."""

import dataclasses
import os
from pathlib import Path

TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")


@dataclasses.dataclass
class Cpu:
    user: float  # seconds
    system: float

    @property
    def total(self):
        return self.user + self.system

    def __sub__(self, earlier):
        return Cpu(self.user - earlier.user, self.system - earlier.system)


def cpu(pid):
    """All threads of it, those that have ended too. FileNotFoundError where there is no such process."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    fields = stat[stat.rindex(")") + 2 :].split()  # a command's name may hold spaces and brackets
    return Cpu(int(fields[11]) * TICK_SECONDS, int(fields[12]) * TICK_SECONDS)


def resident_bytes(pid):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
