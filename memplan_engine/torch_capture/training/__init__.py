"""Training steps: traced as eager takes them, or exported as joint graphs."""
