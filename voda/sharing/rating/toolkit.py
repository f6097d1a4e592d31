"""What raters share: choosing devices by an order, by tightness, or the lowest-numbered."""

import numpy as np

from voda.domain.gpus import MILLI_PER_DEVICE
from voda.sharing.rating.nodes import Bools, Floats, Ints, NodeArrays


def first_devices(fitting: Bools, count: int) -> Bools:
    """Return shape (n, d): the `count` lowest-numbered fitting devices of each node."""
    return fitting & (np.cumsum(fitting, axis=1) <= count)


def best_devices(order: Floats | Ints, fitting: Bools, count: int) -> Bools:
    """Return shape (n, d): the `count` fitting devices of each node that are highest in `order`; the first of equals.

    Where fewer fit, others are among them.
    """
    ranked = np.where(fitting, order, -np.inf)
    if count == 1:
        return one_hot(ranked.argmax(axis=1), fitting.shape[1])
    places = np.argsort(-ranked, axis=1, kind="stable")[:, :count]
    picked = np.zeros_like(fitting)
    np.put_along_axis(picked, places, values=True, axis=1)
    return picked


def tightest(nodes: NodeArrays, fitting: Bools) -> Bools:
    """Return shape (n, d): the fitting device with the least compute free, then the least memory, then the first."""
    memory = nodes.device_memory
    return best_devices(-(nodes.milli * (int(memory.max(initial=0)) + 1) + memory), fitting, 1)


def one_hot(columns: Ints, width: int) -> Bools:
    """Return shape (n, width) with True in the column of each row."""
    return np.asarray(columns[:, None] == np.arange(width))


def different_devices(nodes: NodeArrays, fitting: Bools) -> Bools:
    """Return shape (n, d): the fitting devices, less those of which as much is free as of the one before them."""
    same = np.zeros_like(fitting)
    same[:, 1:] = (nodes.milli[:, 1:] == nodes.milli[:, :-1]) & fitting[:, :-1]
    return fitting & ~same


def touched(before: NodeArrays, after: NodeArrays) -> Bools:
    """Return shape (n, d): the devices of which something is taken."""
    return np.asarray((before.milli != after.milli) | (before.device_memory != after.device_memory))


def occupancy(nodes: NodeArrays) -> Floats:
    """Return shape (n, d): the share of each device that is taken, of its compute or its memory, whichever is more."""
    memory = nodes.hardware.device_memory[nodes.index]
    free = np.minimum(nodes.milli / MILLI_PER_DEVICE, nodes.device_memory / np.maximum(memory, 1) + (memory == 0))
    return np.asarray(1.0 - free)


def fullness(before: NodeArrays, after: NodeArrays) -> Floats:
    """Return shape (n,): how full the node is with the pod, and the devices that it takes, each 0 to 1, in the mean."""
    present = np.arange(after.width) < after.hardware.device_counts[after.index][:, None]
    full = np.where(present, occupancy(after), 0.0)
    taken = touched(before, after)
    node = full.sum(axis=1) / np.maximum(present.sum(axis=1), 1)
    devices = np.where(taken, full, 0.0).sum(axis=1) / np.maximum(taken.sum(axis=1), 1)
    return np.asarray((node + devices) / 2)
