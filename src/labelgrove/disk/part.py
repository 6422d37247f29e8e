"""The former home of ``Part``, for modules that still import it from here."""

from labelgrove.core.part import Part as Part
