"""Recalibration of predictions by a temperature."""

from calibjax.recalibration._fit_temperature import fit_temperature as fit_temperature
from calibjax.recalibration._temper import temper as temper
