"""JAX functions of many kinds, each with its arguments as shapes: factories for `memplan capture --jax`.

Imported by the interpreter that has jax; `jax_kinds` names them for others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

Made = tuple[Callable[..., Any], tuple[Any, ...]]


def f32(*sizes: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sizes, jnp.float32)


def chain() -> Made:
    return (lambda x, v, w: jnp.tanh(x @ v) @ w @ v @ w), (f32(32, 64), f32(64, 96), f32(96, 64))


def scan() -> Made:
    def body(carry, w):
        carry = jnp.tanh(carry @ w)
        return carry, carry.sum(axis=0)

    return (lambda x, ws: lax.scan(body, x, ws)), (f32(32, 64), f32(5, 64, 64))


def scan_grad() -> Made:
    def loss(ws, x):
        return lax.scan(lambda carry, w: (jnp.sin(carry @ w), None), x, ws)[0].sum()

    return jax.grad(loss), (f32(6, 64, 64), f32(16, 64))


def while_loop() -> Made:
    def body(state):
        i, m, w = state
        return i + 1, (m @ w) @ w @ w @ w, w

    return (lambda m, w: lax.while_loop(lambda s: s[1][0, 0] < s[0], body, (0, m, w))[1]), (
        f32(48, 48),
        f32(48, 48),
    )


def fori_loop() -> Made:
    return (lambda x: lax.fori_loop(0, 7, lambda i, c: jnp.roll(c, i) @ c, x)), (f32(40, 40),)


def nested_loops() -> Made:
    def inner(i, c):
        return lax.fori_loop(0, 3, lambda j, d: d @ d.T + j, c)

    return (lambda x: lax.fori_loop(0, 4, inner, x)), (f32(32, 32),)


def cond() -> Made:
    def yes(a, b):
        return (a @ b) @ a

    def no(a, b):
        return jnp.sort(a + b, axis=0)

    return (lambda p, a, b: lax.cond(p > 0, yes, no, a @ b, b)), (f32(), f32(64, 64), f32(64, 64))


def switch() -> Made:
    branches = [lambda a: a @ a, lambda a: jnp.cumsum(a, axis=1), lambda a: a.T]
    return (lambda i, a: lax.switch(i, branches, jnp.exp(a)).sum(axis=0)), (
        jax.ShapeDtypeStruct((), jnp.int32),
        f32(56, 56),
    )


def conv() -> Made:
    def net(x, k, m):
        dims = ("NHWC", "HWIO", "NHWC")
        x = jax.nn.relu(lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=dims))
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        return lax.conv_general_dilated(x, m, (1, 1), "SAME", dimension_numbers=dims)

    return net, (f32(2, 16, 16, 3), f32(3, 3, 3, 8), f32(3, 3, 8, 8))


def attention() -> Made:
    def attend(x, w):
        q, k, v = jnp.split(x @ w, 3, axis=-1)
        scores = jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", q, k) / 8.0)
        return x + jnp.einsum("bqk,bkd->bqd", scores, v)

    return attend, (f32(2, 24, 64), f32(64, 192))


def _loss(params, x, y):
    for w, b in params:
        x = jnp.tanh(x @ w + b)
    return ((x - y) ** 2).mean()


def _layers() -> list[tuple[Any, Any]]:
    return [(f32(64, 128), f32(128)), (f32(128, 96), f32(96)), (f32(96, 10), f32(10))]


def grad_mlp() -> Made:
    return jax.value_and_grad(_loss), (_layers(), f32(32, 64), f32(32, 10))


def donated() -> Made:
    def step(params, x, y):
        gradients = jax.grad(_loss)(params, x, y)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients)

    return jax.jit(step, donate_argnums=0), (_layers(), f32(32, 64), f32(32, 10))


def sort() -> Made:
    return (lambda x: (jnp.sort(x, axis=-1), jnp.argsort(x, axis=0)[:3], lax.top_k(x, 4)[0])), (f32(24, 40),)


def vmap() -> Made:
    return jax.vmap(lambda a, b: jnp.linalg.norm(a @ b) * a), (f32(6, 20, 20), f32(6, 20, 20))


def custom_vjp() -> Made:
    @jax.custom_vjp
    def clipped(x):
        return jnp.exp(x)

    clipped.defvjp(lambda x: (jnp.exp(x), (x, jnp.exp(x))), lambda r, g: (jnp.clip(g * r[1], -1, 1) + r[0],))
    return jax.grad(lambda w, x: clipped(clipped(x @ w) @ w).sum()), (f32(48, 48), f32(16, 48))


def remat() -> Made:
    @partial(jax.checkpoint)
    def block(x, w):
        return jnp.sin(jnp.sin(x @ w) @ w)

    def loss(ws, x):
        for w in ws:
            x = block(x, w)
        return x.sum()

    return jax.grad(loss), ([f32(64, 64)] * 4, f32(32, 64))


def dtypes() -> Made:
    def mixed(a, b, i, flag):
        wide = (a.astype(jnp.bfloat16) @ b.astype(jnp.bfloat16)).astype(jnp.float32)
        picked = jnp.take(wide, i, axis=0)
        return jnp.where(flag[:, None], picked, 0).astype(jnp.float16), (i % 3).astype(jnp.int8)

    return mixed, (
        f32(20, 36),
        f32(36, 28),
        jax.ShapeDtypeStruct((12,), jnp.int32),
        jax.ShapeDtypeStruct((12,), jnp.bool_),
    )


def random() -> Made:
    def noisy(seed, x):
        key = jax.random.key(seed)
        return x * jax.random.bernoulli(key, 0.5, x.shape) + jax.random.normal(key, x.shape)

    return noisy, (jax.ShapeDtypeStruct((), jnp.int32), f32(33, 17))


def linear_algebra() -> Made:
    return (lambda a, b: jnp.linalg.solve(a @ a.T + jnp.eye(24), b) + jnp.fft.fft(b, axis=0).real), (
        f32(24, 24),
        f32(24, 8),
    )
