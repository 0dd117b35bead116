"""Optuna looks for the options of e-COP with the most reward within the limit.

pip install 'ecop[examples]'; python examples/sweep.py [trials]
"""

import sys

import optuna

import ecop


def objective(trial):
    algorithm = ecop.ECOP(
        beta=trial.suggest_float("beta", 1.0, 20.0, log=True),
        caution=trial.suggest_float("caution", 0.0, 2.0),
    )
    run = ecop.train("FactoredRing", algorithm, seeds=2, iterations=30, watch=None)
    summary = run.evaluate(500).summary()
    for cost in summary["constraints"]:
        trial.set_constraint(cost["name"], cost["mean"] - cost["limit"])
    return summary["reward"]["mean"]


def main(trials=6):
    sampler = optuna.samplers.TPESampler(seed=0)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(objective, n_trials=trials)
    print("reward    over  options")
    for trial in sorted(study.trials, key=lambda t: -t.value):
        over = max(trial.constraints.values())
        options = ", ".join(f"{k}={v:.2f}" for k, v in trial.params.items())
        print(f"{trial.value:6.3f}  {over:+.3f}  {options}")
    best = study.best_trial  # of those within the limits
    print(f"best within the limits: reward {best.value:.3f}, {best.params}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
