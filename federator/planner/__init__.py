"""Forecasts and plans of a slower pace than the passes."""
