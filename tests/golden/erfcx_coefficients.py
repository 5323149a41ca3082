"""Compute the coefficients of ``calibjax/_erfcx.py`` as they stand there (needs mpmath).

With t = (x - 3) / (x + 3), the half line x >= 0 becomes -1 <= t < 1, where (x + 3) erfcx(x) is
smooth, limit at t = 1 included.  It is interpolated at Chebyshev nodes and the interpolant expanded
in powers of t, all with 50 digits; only the printed numbers are rounded.

`python tests/golden/erfcx_coefficients.py` prints them.
"""

import mpmath


def scaled(t):
    """(x + 3) erfcx(x) at x = 3 (1 + t) / (1 - t), and its limit at t = 1."""
    if t == 1:
        return 1 / mpmath.sqrt(mpmath.pi)
    x = 3 * (1 + t) / (1 - t)
    return (x + 3) * mpmath.exp(x * x) * mpmath.erfc(x)


def main():
    mpmath.mp.dps = 50
    for name, count, digits, per_line in (("FLOAT32", 14, 9, 5), ("FLOAT64", 27, 17, 3)):
        powers = mpmath.chebyfit(scaled, [-1, 1], count)  # highest power first, as Horner reads
        numbers = [f"{float(c):.{digits - 1}e}" for c in powers]
        lines = (", ".join(numbers[i : i + per_line]) for i in range(0, count, per_line))
        print(f"_{name} = (")
        print(*(f"    {line}," for line in lines), sep="\n")
        print(")  # fmt: skip")


if __name__ == "__main__":
    main()
