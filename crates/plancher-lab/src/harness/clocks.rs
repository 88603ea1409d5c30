//! The device's clock against the host's.

use crate::record::PointRun;

/// The host needs so long, in milliseconds, for a launch and a wait, beyond what the device needs; the head start that it
/// gives itself is in it.
const HOST_OVERHEAD: f64 = 0.3;

/// Why the two clocks of a point do not agree: the host waited much longer for the whole device than the device says the
/// work took, or not even so long. (Medians: now and then the host is interrupted.)
#[must_use]
pub fn times_disagree(point: &PointRun) -> Option<String> {
    let pairs = point.milliseconds.iter().zip(&point.host_milliseconds);
    let excess = median(pairs.map(|(device, host)| host - device).collect())?;
    let device = median(point.milliseconds.clone())?;
    let text = |what: &str| {
        let host = device + excess;
        format!("at {}: the device says {device:.4} ms and the host {host:.4} ms: {what}", point.shape)
    };
    if excess > HOST_OVERHEAD + device / 2.0 {
        return Some(text("something ran that the marks do not enclose"));
    }
    (excess < 0.0).then(|| text("that cannot be"))
}

fn median(mut samples: Vec<f64>) -> Option<f64> {
    samples.sort_unstable_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Label;
    use crate::step::Ceiling;
    use crate::{Dtype, Operation, Shape};

    #[test]
    fn work_that_the_marks_do_not_enclose_shows_on_the_hosts_clock() {
        let of = |device: &[f64], host: &[f64]| {
            let shape = Shape::Vector(1 << 28);
            times_disagree(&PointRun {
                shape,
                elements: shape.elements(),
                bytes: Operation::Saxpy.bytes(Dtype::F32, shape),
                flops: Operation::Saxpy.flops(shape),
                milliseconds: device.to_vec(),
                host_milliseconds: host.to_vec(),
                ceiling: Ceiling::Triad,
                ceiling_samples: Vec::new(),
                label: Label::Memory,
                verified: 2,
                in_flight_bytes: None,
                sweep: false,
                failure: None,
            })
        };
        assert_eq!(of(&[0.7, 0.7, 0.7], &[0.75, 0.76, 9.0]), None);
        assert_eq!(of(&[0.003, 0.003, 0.003], &[0.05, 0.05, 0.05]), None);
        assert!(of(&[0.003, 0.003, 0.003], &[0.75, 0.75, 0.75]).is_some_and(|text| text.contains("do not enclose")));
        assert!(of(&[2.0, 2.0, 2.0], &[0.75, 0.75, 0.75]).is_some_and(|text| text.contains("cannot be")));
    }
}
