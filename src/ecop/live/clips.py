"""Fresh clips of a run, drawn now and then beside its training."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path

from ecop import api, runs
from ecop.errors import Diverged, UserError
from ecop.simulators.pool import SimulatorError

PAUSE = 30.0  # s between two clips, at least
SHARE = 20  # a clip that took a second is followed by a pause of so many


class Clips(threading.Thread):
    """Draws an episode of the first policy whenever there is a newer checkpoint.

    Attributes:
        data: the newest clip, a GIF
        iteration: the iteration it is of; 0: there is none yet
        note: why there is none
    """

    def __init__(self, path: Path, *, trust: bool) -> None:
        super().__init__(daemon=True)
        self.path = path
        self.trust = trust
        self.data = b""
        self.iteration = 0
        self.note = "A clip follows the first checkpoint."
        self.leaving = threading.Event()

    def run(self) -> None:
        """Draw until it is time to leave."""
        pause = 0.0
        tried = ""
        while not self.leaving.wait(max(pause, 1.0)):
            names = [folder.name for folder in runs.checkpoints(self.path)]
            if not names or names[-1] == tried:
                pause = 0.0
                continue
            start = time.monotonic()
            tried = names[-1]
            self.draw()
            pause = max(PAUSE, SHARE * (time.monotonic() - start))

    def draw(self) -> None:
        """Draw the newest checkpoint, or note why that cannot be done."""
        loaded = None
        try:
            loaded = api.load(self.path, trust=self.trust, watch=None)
            self.data = loaded.render().data
            self.iteration, self.note = loaded.iteration, ""
        except (UserError, Diverged, SimulatorError, OSError) as error:
            self.note = f"No clip: {error}"
        finally:
            with contextlib.suppress(Exception):
                if loaded is not None and hasattr(loaded.learner.env, "close"):
                    loaded.learner.env.close()
