import pytest
import torch

from infoshot import DataError, FeatureTable, InvalidArgumentError
from infoshot.features import prepare, unit_length


def test_rows_of_any_size_get_length_one():
    directions = torch.tensor([[3.0, 4.0], [1.0, 0.0], [0.0, -2.0]])
    for scale in (1e-30, 1.0, 1e30):
        z = unit_length(directions * scale)
        torch.testing.assert_close(z, torch.tensor([[0.6, 0.8], [1.0, 0.0], [0.0, -1.0]]))


def test_message_names_the_zero_row():
    with pytest.raises(InvalidArgumentError, match=r"must not be all zero.*got row 1"):
        unit_length(torch.tensor([[1.0, 0.0], [0.0, 0.0]]))


def test_preparation_follows_the_method():
    features = torch.tensor([[3.0, 4.0], [2.0, 0.0]], dtype=torch.float16)
    table = FeatureTable(features, torch.tensor([0, 1]), base_mean=torch.tensor([3.0, 0.0]))
    assert prepare(table, "l2").dtype == torch.float32
    torch.testing.assert_close(prepare(table, "l2"), torch.tensor([[0.6, 0.8], [1.0, 0.0]]))
    torch.testing.assert_close(
        prepare(table, "centred-l2"), torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
    )


def test_missing_base_mean_is_reported():
    table = FeatureTable(torch.rand(2, 3), torch.tensor([0, 1]))
    with pytest.raises(DataError, match="the features have no base_mean; extract them with it"):
        prepare(table, "centred-l2")


def test_zero_row_of_a_table_is_reported():
    table = FeatureTable(torch.zeros(2, 3), torch.tensor([0, 1]))
    with pytest.raises(DataError, match="got row 0"):
        prepare(table, "l2")


def test_square_roots_are_taken_if_no_feature_is_negative():
    table = FeatureTable(torch.tensor([[9.0, 16.0], [4.0, 0.0]]), torch.tensor([0, 1]))
    expected = torch.tensor([[0.6, 0.8], [1.0, 0.0005]])
    torch.testing.assert_close(prepare(table, "power-l2"), expected, atol=1e-6, rtol=0)


def test_negative_features_have_no_square_roots_and_give_a_warning():
    table = FeatureTable(torch.tensor([[3.0, -4.0], [4.0, 0.0]]), torch.tensor([0, 1]))
    with pytest.warns(
        UserWarning, match=r"1 values are negative, so the features are used without square roots"
    ):
        torch.testing.assert_close(prepare(table, "power-l2"), prepare(table, "l2"))


def test_raw_features_stay_as_they_are_in_single_precision():
    table = FeatureTable(torch.tensor([[3.0, -4.0], [0.0, 0.0]]).half(), torch.tensor([0, 1]))
    assert torch.equal(prepare(table, "none"), torch.tensor([[3.0, -4.0], [0.0, 0.0]]))
