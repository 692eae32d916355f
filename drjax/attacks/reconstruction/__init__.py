"""The reconstruction ladder, from baselines over closed forms to neural networks."""
