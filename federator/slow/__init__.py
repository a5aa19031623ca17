"""What is coming? Forecasts, and plans that look ahead; slower than a pass, and no part of it."""
