"""Everything that wants an accelerator, in order of value, in pieces that a card lent for minutes can hold.

    python -m bench.gpu_hour --list
    python -m bench.gpu_hour --dry-run --out runs/dry
    python -m bench.gpu_hour --out runs/hour --data DATA --minutes 9

README.md one folder up says how to use it; `bench.gpu_merge` files what came back into the committed results.
"""
