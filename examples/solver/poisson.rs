//! The problem: -(u_xx + u_yy) = f on the unit square, 0 at its sides, with a solution that is known.

use std::f64::consts::{E, PI};

/// A grid of `n` x `n` points inside the square, at distances of `h`.
#[derive(Clone, Copy)]
pub(crate) struct Grid {
    pub(crate) n: usize,
    h: f64,
}

/// How far a result is from the solution, and the most that it may be.
pub(crate) struct Errors {
    pub(crate) largest: f64,
    /// Of the grid: what the five-point formula leaves out.
    pub(crate) of_grid: f64,
    /// Of the solver and of 32-bit numbers: what the equations say of the result.
    pub(crate) of_solver: f64,
}

impl Grid {
    pub(crate) fn new(n: usize) -> Self {
        Self { n, h: 1.0 / (n + 1) as f64 }
    }

    fn points(self) -> impl Iterator<Item = [f64; 2]> {
        let at = move |index: usize| (index + 1) as f64 * self.h;
        (0..self.n * self.n).map(move |i| [at(i % self.n), at(i / self.n)])
    }

    /// The right side of the equations A u = b, with A as in the kernel `laplace`.
    pub(crate) fn right_side(self) -> Vec<f32> {
        self.points().map(|point| (self.h * self.h * source(point)) as f32).collect()
    }

    /// The largest difference from the solution, and its bound: |u| <= max |A u| / (8 h^2) for any u, and
    /// the five-point formula is off by h^2 / 12 times the fourth derivatives.
    pub(crate) fn errors(self, u: &[f32]) -> Errors {
        let difference = |(&u, point)| (f64::from(u) - solution(point)).abs();
        let value = |x: usize, y: usize| f64::from(u[y * self.n + x]);
        let residual = |(i, point): (usize, [f64; 2])| {
            let (x, y) = (i % self.n, i / self.n);
            let mut sum = 4.0 * value(x, y) - self.h * self.h * source(point);
            sum -= if x > 0 { value(x - 1, y) } else { 0.0 };
            sum -= if y > 0 { value(x, y - 1) } else { 0.0 };
            sum -= if x + 1 < self.n { value(x + 1, y) } else { 0.0 };
            sum -= if y + 1 < self.n { value(x, y + 1) } else { 0.0 };
            sum.abs()
        };
        Errors {
            largest: largest(u.iter().zip(self.points()).map(difference)),
            of_grid: self.h * self.h / 96.0 * FOURTH_DERIVATIVE,
            of_solver: largest(self.points().enumerate().map(residual)) / (8.0 * self.h * self.h),
        }
    }
}

impl Errors {
    /// Whether the result is as near as it has to be. A solver that has not converged gives a bound that
    /// says nothing, so its part is bounded as well: the solution's largest value is 0.4.
    pub(crate) fn are_within_bounds(&self) -> bool {
        self.largest <= self.of_grid + self.of_solver && self.of_solver < 0.01
    }
}

/// The largest number, and NaN if one is.
fn largest(numbers: impl Iterator<Item = f64>) -> f64 {
    numbers.fold(0.0, |largest, number| if number > largest || number.is_nan() { number } else { largest })
}

/// u = e^x sin(pi x) y (1 - y)
fn solution([x, y]: [f64; 2]) -> f64 {
    x.exp() * (PI * x).sin() * y * (1.0 - y)
}

/// f = -(u_xx + u_yy)
fn source([x, y]: [f64; 2]) -> f64 {
    let u_xx = ((1.0 - PI * PI) * (PI * x).sin() + 2.0 * PI * (PI * x).cos()) * y * (1.0 - y);
    -x.exp() * (u_xx - 2.0 * (PI * x).sin())
}

/// A bound on |u_xxxx|: e |1 + i pi|^4 / 4; u_yyyy is 0.
const FOURTH_DERIVATIVE: f64 = E * (1.0 + PI * PI) * (1.0 + PI * PI) / 4.0;
