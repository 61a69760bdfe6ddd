#!/usr/bin/env python3
"""How much of the blocks' time the causal forward's order of tiles uses, by simulation: no GPU.

  bench/cuda/tile_order.py [--seqlen 16384] [--rows 192] [--keys 80] [--all-heads 16] [--blocks 132]

A tile takes as long as it has tiles of keys, and one more. Lines: heads worked on at once; columns: tiles that a
block has drawn beside the one it works on.
"""

import argparse
import collections
import heapq


def costs(n, rows, keys, all_heads, heads):
    """Of the tiles in the order in which they are drawn: longest first within each section of `heads`."""
    ends = range(-(-n // rows), 0, -1)
    return [-(-min(n, end * rows) // keys) + 1 for first in range(0, all_heads, heads) for end in ends
            for _ in range(min(heads, all_heads - first))]


def used(tiles, ahead, n_blocks):
    waiting = collections.deque(tiles)
    drawn = [collections.deque() for _ in range(n_blocks)]
    for _ in range(1 + ahead):
        for queue in drawn:
            if waiting:
                queue.append(waiting.popleft())
    free, end = [(0, block) for block in range(n_blocks)], 0
    while free:
        now, block = heapq.heappop(free)
        end = max(end, now)
        if drawn[block]:
            now += drawn[block].popleft()
            if waiting:
                drawn[block].append(waiting.popleft())
            heapq.heappush(free, (now, block))
    return sum(tiles) / n_blocks / end


def main():
    parser = argparse.ArgumentParser()
    for name, default in (("seqlen", 16384), ("rows", 192), ("keys", 80), ("all-heads", 16), ("blocks", 132)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    for heads in (1, 2, 4, 8, 16):
        tiles = costs(args.seqlen, args.rows, args.keys, args.all_heads, heads)
        print(f"{heads:3}", *(f"{used(tiles, ahead, args.blocks):.3f}" for ahead in (0, 1, 2)))


if __name__ == "__main__":
    main()
