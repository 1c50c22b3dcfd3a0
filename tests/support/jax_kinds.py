"""The names of the functions in `jax_models`, for who has no jax to import it."""

NAMES = (
    "chain", "scan", "scan_grad", "while_loop", "fori_loop", "nested_loops", "cond", "switch", "conv",
    "attention", "grad_mlp", "donated", "sort", "vmap", "custom_vjp", "remat", "dtypes", "random",
    "linear_algebra",
)  # fmt: skip
