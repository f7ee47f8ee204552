"""Our own figures: names of points are readable."""

import itertools

from matplotlib.figure import Figure

from lab import drawing


def test_names_of_points_cover_neither_points_nor_each_other():
    figure = Figure(figsize=(4, 3))
    axes = figure.subplots()
    points = {f"C{place}": (0.01 * place, 0.01 * place) for place in range(8)}
    axes.set(xlim=(-1, 1), ylim=(-1, 1))
    drawing.name_points(axes, points, fontsize=7)
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in axes.texts]
    assert len(boxes) == 8
    for one, other in itertools.combinations(boxes, 2):
        assert not one.overlaps(other)
    for point in points.values():
        assert not any(box.contains(*axes.transData.transform(point)) for box in boxes)
