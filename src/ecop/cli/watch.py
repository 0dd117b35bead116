"""`ecop watch`: a page that follows a run while it is trained."""

import signal
from pathlib import Path

from ecop.cli.commands import parse


def watch_command(argv: list[str]) -> int:
    """Parse the options and serve the page."""
    return parse(watch, "watch", argv)


def watch(run: Path, /, *, port: int = 8260, trust: bool = False) -> int:
    """Follow a run in a browser: curves, limits, multipliers, a clip now and then.

    The page is for this machine only and reads the run folder, nothing else; training
    does not notice. Ctrl-C or SIGTERM ends it.

    Args:
        run: run folder
        port: where the page is; 0: any that is free
        trust: run the code that the folder names to draw clips, if its task is none of
            the library's

    """
    from ecop.live.server import Live, Server

    live = Live(run, trust=trust)
    with Server(live, port) as server:
        print(server.address, flush=True)
        live.clips.start()
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            live.clips.leaving.set()
        finally:
            signal.signal(signal.SIGTERM, before)
    return 0
