// SPDX-License-Identifier: GPL-2.0

//! A responder that receives and replies in one thread.

use crate::proto::responder::credits::{Arrivals, Conduct, ResponderCredits};
use crate::proto::wire::header::Credits;

impl ResponderCredits {
    /// What has arrived.
    pub(crate) fn arrivals(&self) -> Arrivals {
        Arrivals {
            requested: self.requested(),
            received: self.answered().saturating_add(self.outstanding()),
        }
    }

    /// A Call arrives that asks for `requested` credits, or a message that is answered with an
    /// RDMA_ERROR.
    pub(crate) fn call(&mut self, requested: Credits) -> Conduct {
        let arrivals = Arrivals {
            requested,
            received: self.arrivals().received.wrapping_add(1),
        };
        self.arrived(arrivals);
        arrivals.conduct(self.allowed())
    }
}
