"""Visual features of a map: the brightness and continuity of columns, lines and squares in the image of the map."""

import torch
from jaxtyping import Bool

from bertsecrets.patterns.features.reductions import BAND_DIAGONALS, Row, View
from bertsecrets.patterns.features.regions import EPSILON, Column, mean, quarter_sizes


def picture_features(view: View) -> dict[str, Column]:
    """Return the brightness and continuity of columns and diagonals, and the brightness of squares."""
    read, within = view.read, view.within
    height = read.light_received[:, 0] / view.lengths[:, None]
    haze = (read.light_received[:, 1:].sum(1) * within).sum(1) / view.words.clamp(min=1).square()
    features = {"haze": haze}
    brightest = torch.nn.functional.pad(height, (0, 6)).topk(6, dim=1).values
    for name, upper, lower in (("12", 0, 1), ("16", 0, 5), ("26", 1, 5)):
        features[f"column_gap{name}"] = brightest[:, upper] - brightest[:, lower]
    features["column1_light"], features["column6_light"] = brightest[:, 0], brightest[:, 5]
    features["column_over_haze"] = brightest[:, 0] - haze
    column = read.brightest_column.masked_fill(~view.real, torch.nan)
    features["column_darker_rows"] = column.nanquantile(0.2, dim=1, interpolation="lower")
    unbroken = read.bright_cells / view.lengths[:, None]
    features["column_unbroken"] = unbroken.amax(1)
    features["columns_half"] = ((unbroken > 0.4).sum(1) / view.lengths).float()
    features["columns_explain"] = _explained(read.unexplained, height, within)
    bands, exists = read.light_bands, view.near(view.real)
    neighbours = (bands[:, :-6] + bands[:, 6:]) / (exists[:, :-6] + exists[:, 6:]).clamp(min=1)
    lines, whole = [], []
    for offset in (-2, -1, 0, 1, 2):
        line, rows = bands[:, BAND_DIAGONALS + offset], within & (exists[:, BAND_DIAGONALS + offset] > 0)
        sides = neighbours[:, offset + 2]
        lines.append(mean(line, rows))
        whole.append(mean(((line > 0.4) & (line > 1.3 * sides)).float(), rows))
        if not offset:
            features["self_line_over"], features["self_line_unbroken"] = mean(line - sides, rows), whole[-1]
    features["line_light"], features["line_unbroken"] = torch.stack(lines).amax(0), torch.stack(whole).amax(0)
    features["column_minus_line"] = features["column1_light"] - features["line_light"]
    lights = read.light_received[:, 1:] @ view.texts.float().transpose(1, 2) / quarter_sizes(view.texts).clamp(min=1)
    squares, corners = lights[:, (0, 1), (0, 1)], lights[:, (0, 1), (1, 0)]
    two = view.two.float()
    features["square_light"], features["corner_light"] = squares.amin(1) * two, corners.amax(1) * two
    features["square_over_corner"] = (squares.amin(1) - corners.amax(1)) * two
    features["squares_over_corners"] = (squares - corners).sum(1) * two
    return features


def _explained(rest: Column, height: Row, within: Bool[torch.Tensor, "maps tokens"]) -> Column:
    """Return the fraction of the variance in brightness that is explained by column means.

    The variance is computed over cells whose row and column both belong to words. Column means are computed over all
    rows, including those of special tokens.
    """
    size = within.sum(1).clamp(min=1).float()
    rest = rest / size.square()
    level = (height * within).sum(1) / size
    between = mean((height - level[:, None]).square(), within)
    return between / (between + rest + EPSILON)
