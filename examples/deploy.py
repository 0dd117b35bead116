"""From a stock Gymnasium environment to a certified policy that NumPy and ONNX play.

pip install 'ecop[gym,onnx]' onnxruntime pygame
"""

import gymnasium
import numpy as np
import onnxruntime

import ecop
import ecop.player


def off_centre(obs, action, next_obs, info, t):
    """1 for a step that ends farther than 0.2 m from the centre."""
    return float(abs(next_obs[0]) > 0.2)


env = ecop.from_gymnasium("CartPole-v1", horizon=100, costs=off_centre, limits=[5.0])
run = ecop.train(env, seeds=2, iterations=40, out="cartpole")
print(run.evaluate(50))
print(run.certify(bounds=[100.0]))  # of 100 steps each costs 1 at most
run.plot("curves.png", x="steps")
run.render("episode.gif")
played = ecop.player.load(run.export("policy.npz"))
session = onnxruntime.InferenceSession(run.export("policy.onnx"))

cart = gymnasium.make("CartPole-v1")
observation, _ = cart.reset(seed=1)
steps = 0
for h in range(100):
    action = run.act(observation, h)
    inputs = {"observation": observation[None], "step": np.array([h])}
    assert action == played.act(observation, h)
    assert action == session.run(["action"], inputs)[0][0]
    observation, _, terminated, _, _ = cart.step(action)
    steps += 1
    if terminated:
        break
print(f"{steps} steps, equal actions: run.act, the NumPy file, onnxruntime")
env.close()
