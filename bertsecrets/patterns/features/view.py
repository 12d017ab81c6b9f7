"""Masks and readings of a stack of maps: all that the features see of it."""

from bertsecrets.patterns.features.readings import Marks, Readings
from bertsecrets.patterns.map_stack import MapStack


class View(Marks):
    """A stack of maps, as the features see it."""

    def __init__(self, stack: MapStack):
        super().__init__(stack)
        self.reach = int(self.widest.max())  # of the ribbon
        self.read = Readings.of(self, self.reach)
