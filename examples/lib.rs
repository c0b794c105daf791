//! The examples of wakegraph, from small to large:
//!
//! | example | shows |
//! |---|---|
//! | `quickstart` | one graph, awaited |
//! | `update`, `streaming` | other arguments for each submission, several submissions in flight |
//! | `wait_lists`, `several_devices`, `multi_gpu` | order between submissions, and between devices |
//! | `cancel` | what a dropped, cancelled or late submission does |
//! | `profile` | when each node ran |
//! | `photo` | a pipeline of kernels, file I/O and host tasks |
//! | `solver` | a loop that the device decides about |
