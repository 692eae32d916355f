import jax
import numpy as np
import pytest

from drjax.attacks.attack import EveryRecord
from drjax.audits import choice
from drjax.dr import METHODS, Unnamed

X, KEY = np.random.default_rng(0).normal(size=(40, 4)), jax.random.key(0)


def test_it_makes_no_map_and_says_so():
    method = Unnamed(n_components=2)
    for make in (
        lambda: method.fit_transform(KEY, X),
        lambda: method.objective(X[:, :2], X),
        lambda: method.prepare(X),
        lambda: method.insert(KEY, None, X[0]),
        lambda: method.insert_batch(KEY[None], None, X[:1]),
    ):
        with pytest.raises(ValueError, match="method must be known to make a map"):
            make()
    with pytest.raises(ValueError, match="n_components"):
        Unnamed(n_components=0)
    assert Unnamed.name not in METHODS


def test_attacks_that_must_know_the_method_do_not_suit_it():
    every = EveryRecord(method=Unnamed(), x=X, coords=X[:, :2], rows=np.arange(3), stand_ins=None)
    fits = {
        name: attack
        for name, attack in choice.possible(Unnamed(), seed_known=False).items()
        if attack.fits_each(every) is None
    }
    assert list(fits) == ["map", "regression"]
    for attack in fits.values():
        assert np.isfinite(attack.run_each(KEY, every).x).all()
