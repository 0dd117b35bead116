"""The paper's published numbers, as printed: e-COP, NeurIPS 2024.

Every entry is (mean, half of the normal 95 % interval) over 5 runs: the reward first,
then one per cost. The paper's environments are not public, so its returns are no
target; the ordering and the tracking of the limits are.
"""

from __future__ import annotations

Number = tuple[float, float]
Entry = tuple[Number, ...]

NAMES = {
    "ecop": "e-COP",
    "focops": "FOCOPS",
    "ppo_lag": "PPO-L",
    "pcpo": "PCPO",
    "p3o": "P3O",
    "cpo": "CPO",
    "appo": "APPO",
    "ipo": "IPO",
    "pdo": "PDO",
    "cppo_pid": "CPPO-PID",
    "trpo_lag": "TRPO-L",
    "ppo": "PPO",
}

# Table 1, "Mean performance with normal 95% confidence interval over 5 independent runs
# on some tasks". What it has no numbers for ("n/a") is left out.
TABLE1: dict[str, dict[str, Entry]] = {
    "Humanoid": {
        "ecop": ((1652.5, 13.4), (17.3, 0.3)),
        "focops": ((1734.1, 27.4), (19.7, 0.6)),
        "ppo_lag": ((1431.2, 25.2), (18.8, 1.5)),
        "pcpo": ((1602.3, 10.1), (16.3, 1.4)),
        "p3o": ((1669.4, 13.7), (20.1, 3.3)),
        "cpo": ((1465.1, 55.3), (18.5, 2.9)),
        "appo": ((1488.2, 29.3), (20.0, 1.3)),
        "ipo": ((1578.6, 25.2), (19.1, 2.5)),
    },
    "PointCircle": {
        "ecop": ((110.5, 9.3), (9.8, 0.9)),
        "focops": ((81.6, 8.4), (10.0, 0.4)),
        "ppo_lag": ((57.2, 9.2), (9.8, 0.5)),
        "pcpo": ((68.2, 9.1), (9.9, 0.4)),
        "p3o": ((89.1, 7.1), (9.9, 0.3)),
        "cpo": ((65.3, 5.3), (9.5, 0.9)),
        "appo": ((91.2, 9.6), (10.2, 0.6)),
        "ipo": ((68.7, 15.2), (9.3, 0.5)),
    },
    "AntCircle": {
        "ecop": ((198.6, 7.4), (9.8, 0.6)),
        "focops": ((161.9, 22.2), (9.9, 0.5)),
        "ppo_lag": ((134.4, 10.3), (9.6, 1.6)),
        "pcpo": ((168.3, 13.3), (9.5, 0.6)),
        "p3o": ((182.6, 18.7), (9.8, 0.2)),
        "cpo": ((127.1, 12.1), (10.1, 0.7)),
        "appo": ((155.5, 19.4), (10.0, 0.5)),
        "ipo": ((149.3, 33.6), (9.5, 1.0)),
    },
    "PointReach": {
        "ecop": ((81.5, 10.2), (24.5, 6.1)),
        "focops": ((65.1, 9.6), (24.8, 7.6)),
        "ppo_lag": ((46.1, 14.8), (25.1, 6.1)),
        "pcpo": ((73.2, 7.4), (24.9, 5.6)),
        "p3o": ((76.3, 6.4), (26.3, 6.9)),
        "cpo": ((89.2, 8.1), (33.3, 10.7)),
        "appo": ((74.3, 6.7), (26.3, 8.1)),
        "ipo": ((49.1, 10.6), (24.7, 11.3)),
    },
    "AntReach": {
        "ecop": ((70.8, 14.6), (24.2, 8.4)),
        "focops": ((48.3, 5.6), (25.1, 11.9)),
        "ppo_lag": ((54.2, 9.5), (21.9, 10.7)),
        "pcpo": ((39.4, 5.3), (27.9, 12.2)),
        "p3o": ((73.6, 5.1), (24.8, 7.3)),
        "cpo": ((102.3, 7.1), (35.1, 10.9)),
        "appo": ((61.5, 10.4), (24.5, 6.4)),
        "ipo": ((45.2, 13.3), (24.9, 9.2)),
    },
    "Grid": {
        "ecop": ((258.1, 33.1), (71.3, 26.9)),
        "focops": ((215.4, 45.6), (76.6, 29.8)),
        "ppo_lag": ((276.3, 57.9), (71.8, 25.1)),
        "pcpo": ((226.5, 29.2), (72.6, 16.5)),
        "p3o": ((201.5, 39.2), (79.3, 19.3)),
        "cpo": ((178.1, 23.8), (69.3, 19.8)),
        "appo": ((184.4, 21.5), (79.5, 35.8)),
        "ipo": ((229.4, 32.8), (74.2, 24.6)),
    },
    "Bottleneck": {
        "ecop": ((345.1, 52.6), (49.7, 15.1)),
        "focops": ((251.3, 59.1), (46.6, 19.8)),
        "ppo_lag": ((298.3, 71.2), (41.4, 17.6)),
        "pcpo": ((264.2, 43.8), (49.8, 10.5)),
        "p3o": ((291.1, 26.7), (45.3, 8.2)),
        "cpo": ((388.1, 36.6), (54.3, 13.5)),
        "appo": ((220.1, 30.1), (47.4, 12.3)),
        "ipo": ((279.3, 43.8), (48.2, 14.6)),
    },
    "Navigation": {
        "ecop": ((217.6, 11.5), (9.6, 1.5), (23.7, 4.1)),
        "ppo_lag": ((175.1, 3.7), (9.9, 1.9), (22.3, 2.1)),
        "p3o": ((153.5, 25.2), (9.9, 1.7), (24.5, 4.1)),
        "appo": ((135.7, 19.2), (9.9, 2.1), (23.9, 3.8)),
        "ipo": ((164.1, 12.8), (10.0, 0.5), (24.6, 3.1)),
    },
}

# Which entries of Table 1 are dark green and bold, and which light green.
TABLE1_BEST = {
    "Humanoid": "focops",
    "PointCircle": "ecop",
    "AntCircle": "ecop",
    "PointReach": "ecop",
    "AntReach": "p3o",
    "Grid": "ppo_lag",
    "Bottleneck": "ecop",
    "Navigation": "ecop",
}
TABLE1_NEAR = {"Humanoid": "ecop", "AntReach": "ecop", "Grid": "ecop"}

# Table 2, "Performance of e-COP for different beta settings on two tasks", limit 20;
# by the names that suites.beta gives to the variants, and P3O's column.
TABLE2: dict[str, dict[str, Entry]] = {
    "PointCircle": {
        "beta = 5, fixed": ((150.5, 11.1), (17.3, 1.3)),
        "beta = 5, adaptive": ((168.6, 14.3), (19.7, 0.6)),
        "beta = 10, fixed": ((145.2, 12.2), (18.8, 1.5)),
        "beta = 10, adaptive": ((165.3, 11.4), (18.3, 1.4)),
        "p3o": ((162.4, 14.7), (19.1, 3.3)),
    },
    "AntReach": {
        "beta = 5, fixed": ((48.2, 3.5), (19.8, 5.9)),
        "beta = 5, adaptive": ((58.6, 5.1), (20.0, 4.4)),
        "beta = 10, fixed": ((53.2, 5.3), (20.6, 4.5)),
        "beta = 10, adaptive": ((65.2, 8.1), (19.2, 6.2)),
        "p3o": ((61.1, 5.6), (18.9, 7.3)),
    },
}
TABLE2_BEST = {"PointCircle": "beta = 5, adaptive", "AntReach": "beta = 10, adaptive"}
