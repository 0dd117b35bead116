"""Pictures of episodes and of training; no screen is needed."""
