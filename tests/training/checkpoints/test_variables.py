"""Every variable of a module has a path; one that a checkpoint would lack is an error."""

import pytest
import tensorflow as tf

from xtts_pipeline.training.checkpoints.variables import named_variables


class Holder(tf.Module):
    def __init__(self, **held: object) -> None:
        super().__init__()
        for name, value in held.items():
            setattr(self, name, value)


def test_variables_in_attributes_lists_and_dicts_have_paths() -> None:
    part = Holder(bias=tf.Variable(1.0))
    module = Holder(blocks=[part, Holder(bias=tf.Variable(2.0))], heads={"mel": tf.Variable(3.0)}, again=part)
    assert sorted(named_variables(module)) == ["again.bias", "blocks.1.bias", "heads.mel"]


@pytest.mark.parametrize("held", [{"pair": (tf.Variable(1.0),)}, {"_hidden": tf.Variable(1.0)}])
def test_a_variable_without_a_path_is_an_error(held: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="holds variables outside attributes, lists and dicts"):
        named_variables(Holder(**held))
