//! Fill nodes.

use wakegraph::Graph;

use crate::suite::{Need, Setup, tests};

tests!("graph/fills": &[Need::Results] => [values_of_any_size, patterns_of_any_length]);

fn values_of_any_size(setup: &Setup) {
    fn check<T: bytemuck::Pod + PartialEq + std::fmt::Debug + Send + Sync>(setup: &Setup, value: T) {
        let buffer = setup.device().buffer::<T>(13).unwrap();
        let mut graph = Graph::new(setup.device());
        graph.fill(&buffer.slice(2..9).unwrap(), value);
        let exec = graph.finalize().unwrap();
        setup.block_on(async {
            for _ in 0..2 {
                exec.submit().await.unwrap();
                let elements = buffer.to_vec().await.unwrap();
                let zero = T::zeroed();
                let expected = |i| if (2..9).contains(&i) { value } else { zero };
                assert!(
                    elements.iter().enumerate().all(|(i, &element)| element == expected(i)),
                    "{elements:?}"
                );
            }
        });
    }
    check(setup, 0xA5u8);
    check(setup, 0xBEEFu16);
    check(setup, 1.5f32);
    check(setup, -3i64);
    check(setup, u128::MAX / 3);
    check(setup, [1u8, 2, 3]);
    check(setup, [7u32; 5]);
}

fn patterns_of_any_length(setup: &Setup) {
    let device = setup.device();
    for len in [1, 2, 3, 5, 8, 21] {
        let pattern: Vec<u16> = (1..=len).collect();
        let buffer = device.buffer::<u16>(usize::from(len) * 4 + 2).unwrap();
        let mut graph = Graph::new(device);
        graph.fill_pattern(&buffer.slice(1..=usize::from(len) * 4).unwrap(), &pattern);
        let exec = graph.finalize().unwrap();
        setup.block_on(async {
            for _ in 0..2 {
                exec.submit().await.unwrap();
                let elements = buffer.to_vec().await.unwrap();
                let filled = &elements[1..elements.len() - 1];
                assert!(filled.chunks(pattern.len()).all(|chunk| chunk == pattern), "{elements:?}");
                assert_eq!((elements[0], elements[elements.len() - 1]), (0, 0));
            }
        });
    }
}
