"""A page on this machine that follows a run while it is trained: `ecop watch`.

Read-only: nothing is written to the run folder, and the page can ask for nothing but
what it shows. It is served on the loopback interface alone, to requests that name it so
(another site's script cannot reach it under a name of its own), and loads nothing from
elsewhere.
"""
