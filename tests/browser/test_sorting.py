"""The order of rows in the browser, compared with a plain stable sort of the same values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from sbnotebook.widgets.renderers.browser import module

if TYPE_CHECKING:
    from playwright.sync_api import Browser

COMPARE: Final = """
    let seed = 1;
    const chance = (most) => Math.floor((seed = (seed * 16807) % 2147483647) / 2147483647 * most);
    const oneOf = (values) => values[chance(values.length)];
    const several = (length, make) => Array.from({ length }, make);
    const letters = ["a", "b", "Z", " ", "\\0", "é", "ÿ", "語", "\\uffff", "\\ud83d\\ude00"];
    const word = (most) => several(chance(most), () => oneOf(letters)).join("");
    const floats = [0, -0, 1, -1, 0.1, NaN, Infinity, -Infinity, 1e300, -1e300, 5e-324, -5e-324, 2 ** 53];
    const longs = [0n, 1n, -1n, 2n ** 40n, 2n ** 63n - 1n, 1n - 2n ** 63n, 7, null];
    const columns = (count) => {
        const start = word(30);
        return {
            floats: Float64Array.from({ length: count + 5 }, () => oneOf([oneOf(floats), chance(9) - 4])),
            longs: several(count + 5, () => oneOf([oneOf(longs), BigInt(chance(9) - 4)])),
            words: several(count, () => oneOf([word(12), word(3), null])),
            sameStart: several(count, () => start + word(12)),
            repeated: several(count, () => start + "q".repeat(8 * chance(3)) + chance(40)),
            few: several(count, () => oneOf(["UA", "AA", "", undefined])),
            twice: several(count, () => oneOf(["x", "y"]) + "q".repeat(9) + chance(2000)),
            ends: several(count, () => "end" + oneOf(["", "\\0".repeat(9) + chance(2000)])),
            none: [],
        };
    };
    const isThere = (value) => value != null && !Number.isNaN(value);
    const expected = (column, count, descending) => {
        const rows = several(count, (_, row) => row);
        const before = (one, other) => (descending ? column[one] > column[other] : column[one] < column[other]);
        const found = rows.filter((row) => isThere(column[row]));
        found.sort((one, other) => (before(one, other) ? -1 : before(other, one) ? 1 : one - other));
        return [...found, ...rows.filter((row) => !isThere(column[row]))];
    };
    const sorted = (steps) => {
        let step;
        do step = steps.next(); while (!step.done);
        return step.value;
    };
    const wrong = [];
    for (const count of [0, 1, 2, 7, 7, 7, 300, 300, 3000, 3000]) {
        for (const [name, column] of Object.entries(columns(count))) {
            for (const descending of [false, true]) {
                const found = [...sorted(sortedRows(column, count, descending))];
                if (found.join() !== expected(column, count, descending).join()) wrong.push([name, count, descending]);
            }
        }
    }
    return wrong;
"""


@pytest.mark.browser
def test_rows_are_in_the_order_of_a_stable_sort(browser: Browser) -> None:
    page = browser.new_page()
    script = module("sorting.js")
    assert page.evaluate(f"() => {{ {script}\n{COMPARE} }}") == []
    page.close()
